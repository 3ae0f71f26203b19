#!lua
-- Give a flow that was registered anew after a loss its past: where its cycle numbers go on, its state, its age.
-- KEYS 1 flow:{f}
-- ARGV 1 the last cycle number that may have been used 2 paused|stopped|completed|failed|expired ('' = it stays registered) 3 created_at ('' = now)
-- Returns 1; 0 when it is not there, has run, or was started meanwhile.
local f = redis.call('HMGET', KEYS[1], 'status', 'last_cycle')
if f[1] ~= 'registered' or tonumber(f[2]) >= 0 then return 0 end
redis.call('HSET', KEYS[1], 'last_cycle', ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'status', ARGV[2]) end
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'created_at', ARGV[3]) end
return 1

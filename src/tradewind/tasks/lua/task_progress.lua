#!lua flags=allow-oom
-- A worker reports how far a task is. KEYS none beyond 1 task:{id}. ARGV 6 id 7 token 8 progress as JSON
-- Returns 1, or 0 when the token is not the task's newest.
-- include: shared
local f = redis.call('HMGET', KEYS[1], 'status', 'tok', 'c')
if f[1] ~= 'PROCESSING' or f[2] ~= ARGV[7] then return 0 end
redis.call('HSET', KEYS[1], 'prog', ARGV[8])
if f[3] then uncache(ARGV[6]) end
return 1

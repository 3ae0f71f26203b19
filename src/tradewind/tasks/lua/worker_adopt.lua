#!lua flags=allow-oom
-- The leader serves a worker that was registered by hand with an address, as in the seed. KEYS 1 worker:{id}
-- ARGV 1 generation to give it if it has none. Returns its generation; '' when there is no such worker or it pulls by itself.
local f = redis.call('HMGET', KEYS[1], 'gen', 'pull', 'capacity')
if not tonumber(f[3] or '') or f[2] == '1' then return '' end
if f[1] then return f[1] end
redis.call('HSET', KEYS[1], 'gen', ARGV[1])
return ARGV[1]

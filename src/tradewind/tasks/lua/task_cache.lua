#!lua
-- Fill the seed's caches after a read, unless the task has moved on since.
-- KEYS 1 task:{id} 2 task:cache:{id} 3 task:status:{id} 4 task:marked. ARGV 1 status as read 2 token as read 3 the task as JSON 4 ms 5 id
-- Returns 1 when filled.
local f = redis.call('HMGET', KEYS[1], 'status', 'tok')
if f[1] and (f[1] ~= ARGV[1] or (f[2] or '') ~= ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[4])
if f[1] then redis.call('HSET', KEYS[1], 'c', '1', 'x', '1') end
if f[1] == 'PROCESSING' then redis.call('SADD', KEYS[4], ARGV[5]) end
return 1

#!lua flags=allow-oom
-- A worker renews its lease, its record and the locks of its exclusive tasks. Never brings a lost record back.
-- KEYS 1 worker:{id} 2 workers 3 worker:{id}:queue 4 worker:{id}:inflight
-- ARGV 6 worker id 7 generation 8 lease ms 9 TTL ms 10 status 11 ms that a lock lasts, then names of locks
-- Also touches: task:types:{digest}. Returns 1; 0 when the worker must register again.
-- include: shared
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[7] then return 0 end
redis.call('HSET', KEYS[1], 'last_heartbeat', SEC, 'status', ARGV[10], 'current_load',
  redis.call('LLEN', KEYS[3]) + redis.call('ZCARD', KEYS[4]))
redis.call('PEXPIRE', KEYS[1], ARGV[9])
local offer = redis.call('HGET', KEYS[1], 'offer')
if offer then redis.call('PEXPIRE', P .. 'task:types:' .. offer, ARGV[9]) end
redis.call('ZADD', KEYS[2], int(now + tonumber(ARGV[8])), ARGV[6])
for at = 12, #ARGV do
  local key = P .. 'lock:task:' .. ARGV[at]
  if redis.call('GET', key) == ARGV[6] then redis.call('PEXPIRE', key, ARGV[11]) end
end
return 1

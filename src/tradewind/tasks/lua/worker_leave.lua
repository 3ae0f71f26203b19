#!lua flags=allow-oom
-- A worker leaves for good after it gave its work back. KEYS 1 worker:{id} 2 workers 3 worker:types 4 worker:{id}:queue 5 worker:{id}:inflight
-- ARGV 1 key prefix 2 worker id 3 generation
-- Also touches: worker:type:{type}. Returns 1; 0 when it still holds work (the leader will evict it) or is not registered.
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[3] then return 0 end
if redis.call('EXISTS', KEYS[4], KEYS[5]) > 0 then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[2])
for _, kind in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local key = ARGV[1] .. 'worker:type:' .. kind
  if redis.call('SREM', key, ARGV[2]) == 1 and redis.call('EXISTS', key) == 0 then redis.call('SREM', KEYS[3], kind) end
end
return 1

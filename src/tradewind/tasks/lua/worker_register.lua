#!lua flags=allow-oom
-- A worker joins, or joins again under a new generation; what an earlier life of the same id still held goes back.
-- KEYS 1 worker:{id} 2 workers 3 worker:types 4 task:types
-- ARGV 6 worker id 7 generation 8 lease ms 9 TTL ms 10 most stalls 11 number of hash fields and values, then those,
--   then pairs type, parameters as JSON
-- Also touches: worker:{id}:queue, worker:{id}:inflight, worker:type:{type}, queue:high, queue:normal, queue:parked:{priority}:{route}.
-- Returns how many tasks of an earlier life went back.
-- include: shared
-- include: requeue
local worker, fields = ARGV[6], tonumber(ARGV[11])
local entries = {}
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[7] then
  entries = stall(worker, 0, tonumber(ARGV[10]))
  for _, e in ipairs((unassign(worker, 0))) do entries[#entries + 1] = e end
  back(entries)
  for _, kind in ipairs(redis.call('SMEMBERS', KEYS[3])) do redis.call('SREM', P .. 'worker:type:' .. kind, worker) end
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'gen', ARGV[7], 'last_heartbeat', SEC, unpack(ARGV, 12, 11 + fields))
redis.call('PEXPIRE', KEYS[1], ARGV[9])
redis.call('ZADD', KEYS[2], int(now + tonumber(ARGV[8])), worker)
for at = 12 + fields, #ARGV, 2 do
  redis.call('SADD', P .. 'worker:type:' .. ARGV[at], worker)
  redis.call('SADD', KEYS[3], ARGV[at])
  if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1]) end
end
settle()
wake()
return #entries

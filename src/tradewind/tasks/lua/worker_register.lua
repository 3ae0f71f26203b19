#!lua flags=allow-oom
-- A worker joins, or joins again under a new generation; what an earlier life of the same id still held goes back.
-- KEYS 1 worker:{id} 2 workers 3 worker:types 4 task:types
-- ARGV 6 worker id 7 generation 8 lease ms 9 TTL ms 10 most stalls 11 number of hash fields and values 12 number of types and
--   signatures 13 digest of its offer, then those fields, pairs type, signature ('' = any arguments), pairs of the offer
-- Also touches: task:types:{digest}, worker:{id}:queue, worker:{id}:inflight, worker:type:{type}, queue:high, queue:normal, queue:parked:{priority}:{route}.
-- Returns how many tasks of an earlier life went back.
-- include: shared
-- include: requeue
local worker, fields, types, offer = ARGV[6], tonumber(ARGV[11]), tonumber(ARGV[12]), P .. 'task:types:' .. ARGV[13]
local entries = {}
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[7] then
  entries = stall(worker, 0, tonumber(ARGV[10]))
  for _, e in ipairs((unassign(worker, 0))) do entries[#entries + 1] = e end
  back(entries)
  for _, kind in ipairs(redis.call('SMEMBERS', KEYS[3])) do redis.call('SREM', P .. 'worker:type:' .. kind, worker) end
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'gen', ARGV[7], 'last_heartbeat', SEC, unpack(ARGV, 14, 13 + fields))
redis.call('PEXPIRE', KEYS[1], ARGV[9])
redis.call('ZADD', KEYS[2], int(now + tonumber(ARGV[8])), worker)
for at = 14 + fields, 13 + fields + types, 2 do
  redis.call('SADD', P .. 'worker:type:' .. ARGV[at], worker)
  redis.call('SADD', KEYS[3], ARGV[at])
  if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1]) end
end
if ARGV[13] ~= '' then
  redis.call('HSET', KEYS[1], 'offer', ARGV[13])
  for at = 14 + fields + types, #ARGV, 2 do redis.call('HSET', offer, ARGV[at], ARGV[at + 1]) end
  redis.call('PEXPIRE', offer, ARGV[9])
end
settle()
wake()
return #entries

#!lua flags=allow-oom
-- The leader takes the work of a lost worker back, in bounded steps, and then forgets the worker.
-- KEYS 1 scheduler:leader 2 scheduler:epoch 3 workers 4 worker:{id} 5 worker:types
-- ARGV 6 scheduler id 7 epoch 8 worker id 9 limit 10 most stalls
-- Also touches: worker:{id}:queue, worker:{id}:inflight, worker:type:{type}, queue:high, queue:normal, queue:parked:{priority}:{route}.
-- Returns {requeued, '1' when the worker is gone from every index}; {-1} not the leader; {-2} the worker is alive.
-- include: shared
-- include: requeue
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local worker, limit = ARGV[8], tonumber(ARGV[9])
local lease = redis.call('ZSCORE', KEYS[3], worker)
if lease and tonumber(lease) > now then return { -2 } end
if not lease and redis.call('EXISTS', KEYS[4]) == 1 then return { -2 } end
redis.call('DEL', KEYS[4]) -- from here on a worker that wakes up is told to register again
local assigned, seen = unassign(worker, limit)
local entries, stalled = {}, 0
if seen < limit then entries, stalled = stall(worker, limit, tonumber(ARGV[10])) end -- they go before all that waited
for _, e in ipairs(assigned) do entries[#entries + 1] = e end
back(entries)
settle()
if #entries > 0 then wake() end
if seen == limit or stalled == limit then return { #entries, '0' } end
redis.call('ZREM', KEYS[3], worker)
for _, kind in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  local key = P .. 'worker:type:' .. kind
  if redis.call('SREM', key, worker) == 1 and redis.call('EXISTS', key) == 0 then redis.call('SREM', KEYS[5], kind) end
end
return { #entries, '1' }

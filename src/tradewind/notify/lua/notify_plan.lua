#!lua flags=allow-oom
-- Store what was planned, all at once: deliveries, who was told of which alarm, steps of the escalation chain; and take the
-- planned messages out of the outbox. So a message is in the outbox or in its deliveries, whenever the keeper dies. All values
-- are whole, so a repeat changes nothing.
-- KEYS 1 notify:leader 2 notify:epoch 3 notify:outbox 4 notify:jobs 5 notify:due 6 notify:told 7 notify:timers
-- ARGV 1 keeper id 2 epoch 3 number of messages 4 of deliveries 5 of alarms 6 of timers, then in this order: ids of messages; id,
--   JSON and ms of the next try; id of the alarm and JSON ('' = forget); id of the alarm and ms ('' = none)
-- Returns 1 stored; 0 another one is the keeper now.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
local at = 7
local last = at + tonumber(ARGV[3]) - 1
for from = at, last, 4000 do redis.call('XDEL', KEYS[3], unpack(ARGV, from, math.min(from + 3999, last))) end
at = last + 1
for _ = 1, tonumber(ARGV[4]) do
  redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1])
  redis.call('ZADD', KEYS[5], ARGV[at + 2], ARGV[at])
  at = at + 3
end
for _ = 1, tonumber(ARGV[5]) do
  if ARGV[at + 1] == '' then
    redis.call('HDEL', KEYS[6], ARGV[at])
  else
    redis.call('HSET', KEYS[6], ARGV[at], ARGV[at + 1])
  end
  at = at + 2
end
for _ = 1, tonumber(ARGV[6]) do
  if ARGV[at + 1] == '' then
    redis.call('ZREM', KEYS[7], ARGV[at])
  else
    redis.call('ZADD', KEYS[7], ARGV[at + 1], ARGV[at])
  end
  at = at + 2
end
return 1

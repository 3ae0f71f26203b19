#!lua flags=allow-oom
-- The leader moves delayed tasks that are due to their queues.
-- KEYS 1 scheduler:leader 2 scheduler:epoch 3 queue:delayed 4 queue:high 5 queue:normal
-- ARGV 6 scheduler id 7 epoch 8 limit
-- Returns {moved, ms of the next due one or 0}; {-1} not the leader.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local ids = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.3f', now / 1000), 'LIMIT', 0, ARGV[8])
local due = { high = {}, normal = {} }
local moved = {}
for _, id in ipairs(ids) do
  local f = fields(T .. id, 'status', 'pri', 'c')
  if f[1] == 'PENDING' or f[1] == 'RETRYING' then
    table.insert(due[priority_of(f[2])], id)
    moved[#moved + 1] = { id, f[3] }
  end
end
push('ZREM', KEYS[3], ids)
push('LPUSH', KEYS[4], due.high)
push('LPUSH', KEYS[5], due.normal)
for _, m in ipairs(moved) do
  redis.call('HSET', T .. m[1], 'status', 'QUEUED')
  redis.call('HDEL', T .. m[1], 'due')
  if m[2] then uncache(m[1]) end
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
return { #moved, first[2] and int(math.ceil(tonumber(first[2]) * 1000)) or 0 }

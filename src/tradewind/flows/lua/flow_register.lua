#!lua
-- Create a flow or give it a new definition; last_cycle, created_at and the status stay.
-- KEYS 1 flow:{f} 2 flows 3 flows:due 4 flow:{f}:plan:{version} 5 flow:{f}:cycles 6 flows:wake
-- ARGV 1 key prefix 2 flow 3 config JSON 4 structure JSON 5 version 6 now ISO 7 now ms 8 '1' one-shot 9 failures that end it 10 next slot ms by the
--   new schedule ('' none) 11 '1' = refuse if it exists 12 '1' = a node id of it looks like the tail of another flow's (A-8)
--   13 anchor ms of the new slots 14 triggers as JSON ('' none), then pairs plan field, msgpack
-- Also touches: flows:triggers, the flow hashes of ids that this one could be mistaken for, flow:{f}:cycle:{n}, old plans.
-- Returns {1} created, {2} replaced, {0} it exists, {-1, other} node ids would collide with that flow's, {-2} it is being deleted.
local P, id, key = ARGV[1], ARGV[2], KEYS[1]
local f = redis.call('HMGET', key, 'status', 'version', 'created_at', 'last_cycle')
if f[1] and ARGV[11] == '1' then return { 0 } end
if f[1] == 'deleting' then return { -2 } end
-- `f` with a node like `1_b` and `f_1` with a node `b` would share the task id `f_1_1_b`.
if ARGV[12] == '1' then
  for _, other in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], '[' .. id .. '_0', '(' .. id .. '_:', 'LIMIT', 0, 1)) do
    return { -1, other }
  end
end
for at = 1, #id do
  if string.match(id, '^_%d', at) then
    local other = string.sub(id, 1, at - 1)
    if redis.call('HGET', P .. 'flow:' .. other, 'tails') == '1' then return { -1, other } end
  end
end
local old = f[2]
if old and old ~= ARGV[5] then
  local used = false
  for _, n in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
    if redis.call('HGET', key .. ':cycle:' .. n, 'version') == old then used = true end
  end
  if not used then redis.call('UNLINK', key .. ':plan:' .. old) end
end
redis.call('HSET', key, 'id', id, 'config', ARGV[3], 'structure', ARGV[4], 'status', f[1] or 'registered', 'last_cycle', f[4] or '-1',
  'created_at', f[3] or ARGV[6], 'version', ARGV[5], 'once', ARGV[8], 'max_failures', ARGV[9], 'updated_ms', ARGV[7], 'tails', ARGV[12])
if not f[1] then redis.call('HSET', key, 'next_execution', '0') end
redis.call('ZADD', KEYS[2], 0, id)
for at = 15, #ARGV, 2 do redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1]) end
if ARGV[14] ~= '' then redis.call('HSET', P .. 'flows:triggers', id, ARGV[14]) else redis.call('HDEL', P .. 'flows:triggers', id) end
if f[1] == 'running' and ARGV[10] ~= '' then
  local due = redis.call('ZSCORE', KEYS[3], id)
  if old ~= ARGV[5] then redis.call('HSET', key, 'anchor_ms', ARGV[13]) end
  if not due or tonumber(ARGV[10]) < tonumber(due) then
    redis.call('ZADD', KEYS[3], ARGV[10], id)
    redis.call('HSET', key, 'next_execution', string.format('%.3f', tonumber(ARGV[10]) / 1000))
  end
  if redis.call('EXISTS', KEYS[6]) == 0 then redis.call('LPUSH', KEYS[6], '1') end
end
return { f[1] and 2 or 1 }

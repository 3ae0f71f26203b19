#!lua
-- Do what is due: escalate, end a shelving, let go what a cause that has ended suppressed, close and remove what is old; end a
-- flood. Neither an active alarm nor one that nobody acknowledged is ever removed.
-- KEYS 1 alarm:timers
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock) 3 how many timers at most
-- Returns {how many were due, ms until the next is (-1 = there is none)}.
-- include: alarm
local ctx = alarm_context(ARGV[1], ARGV[2])
local A = ctx.prefix .. 'alarm:'

local function remove(h)
  local places, parts = alarm_places(ctx, h), {}
  for name, value in pairs(h) do parts[#parts + 1] = cjson.encode(name) .. ':' .. cjson.encode(value) end
  redis.call('XADD', A .. 'journal', '*', 'id', h.id, 'event', 'removed', 'from', h.status, 'to', h.status, 'at',
    string.format('%.0f', ctx.now), 'who', '', 'note', 'retention', 'rule_id', h.rule_id, 'source', h.source_point, 'level',
    h.level, 'category', h.category, 'version', tostring(tonumber(h.version) + 1), 'count', h.count, 'actual', h.actual_value,
    'title', h.title, 'record', '{' .. table.concat(parts, ',') .. '}')
  for _, key in ipairs(places.sets) do redis.call('SREM', key, h.id) end
  for _, key in ipairs(places.orders) do redis.call('ZREM', key, h.id) end
  redis.call('HDEL', places.bucket, h.id)
  for member in pairs(places.timers) do redis.call('ZREM', KEYS[1], member) end
  redis.call('ZREM', A .. 'recent', h.id)
  redis.call('UNLINK', A .. h.id)
end

local DUE = {
  escalate = function(h)
    if h.status ~= 'New' then return end
    alarm_move(ctx, h, 'Escalated', 'escalated', '', 'not acknowledged in time',
      { escalations = tostring((tonumber(h.escalations) or 0) + 1) })
  end,
  unshelve = function(h)
    if h.status ~= 'Suppressed' or not h.shelved_until then return end
    local to = (h.held_by or h.cause) and 'Suppressed' or 'New'
    alarm_move(ctx, h, to, 'unshelved', '', 'the shelving has ended', nil, { 'shelved_until' })
  end,
  close = function(h)
    if h.status == 'Resolved' and h.acknowledged_at then alarm_move(ctx, h, 'Closed', 'closed', '', 'retention') end
    if h.status == 'Closed' then remove(h) end
  end,
}

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', ctx.now), 'LIMIT', 0, tonumber(ARGV[3]))
for _, member in ipairs(due) do
  local kind, id = string.match(member, '^(%a+):(.+)$')
  if kind == 'release' then
    alarm_release(ctx, id)
  else
    redis.call('ZREM', KEYS[1], member)
    local h = DUE[kind] and alarm_read(ctx, id)
    if h then DUE[kind](h) end
  end
end
alarm_flood(ctx)
local next_due = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return { #due, next_due[2] and math.max(0, tonumber(next_due[2]) - ctx.now) or -1 }

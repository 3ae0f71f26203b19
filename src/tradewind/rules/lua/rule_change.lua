#!lua
-- Store and remove rules and groups, all at once, and give notice. A rule that is switched off or removed loses what it
-- remembers, with its timers, and its open alarms are marked and resolved.
-- KEYS 1 rulesrv:rules 2 rulesrv:groups 3 rulesrv:version 4 rulesrv:states 5 rulesrv:figures 6 rulesrv:since 7 points:feed
--   8 points:cursors (not in a cluster, where each channel has a feed of its own)
-- ARGV 1 JSON of script_context.rule_context 2 now in ms ('' = the server's clock) 3 the change as msgpack: {rules: lists of id, JSON,
--   group or '', former group or '', word for its open alarms or '', 1 when its conditions begin anew, sign; gone: lists of id, group or '', word, sign; groups:
--   lists of id, JSON, sign; dropped: ids of groups}. A sign: SHA-1 of what the caller has found under that id, '' nothing
-- Keys built here from the prefix: rulesrv:rule:{id}, rulesrv:history:{id}, rulesrv:group:{id}, rulesrv:group:{id}:rules
-- Returns {1, version} done, also when it was done before; {0, version} the caller has looked at something else, nothing is
-- changed. What others do to other rules meanwhile is no matter.
-- include: alarms/alarm
local change = cmsgpack.unpack(ARGV[3])
local ctx = alarm_context(ARGV[1], ARGV[2])
local P = ctx.prefix .. 'rulesrv:'
local version = redis.call('GET', KEYS[3]) or '0'
local function differs()
  for _, r in ipairs(change.rules) do if redis.call('GET', P .. 'rule:' .. r[1]) ~= r[2] then return true end end
  for _, r in ipairs(change.gone) do
    if redis.call('SISMEMBER', KEYS[1], r[1]) + redis.call('EXISTS', P .. 'rule:' .. r[1]) > 0 then return true end
  end
  for _, g in ipairs(change.groups) do if redis.call('GET', P .. 'group:' .. g[1]) ~= g[2] then return true end end
  for _, id in ipairs(change.dropped) do if redis.call('SISMEMBER', KEYS[2], id) == 1 then return true end end
  return false
end
local function is_as_found(key, sign)
  local text = redis.call('GET', P .. key)
  return (text and redis.sha1hex(text) or '') == sign
end
local function has_moved()
  local here, known = {}, {}
  for _, g in ipairs(change.groups) do
    if not is_as_found('group:' .. g[1], g[3]) then return true end
    known[g[1]] = true
  end
  for _, r in ipairs(change.rules) do
    if not is_as_found('rule:' .. r[1], r[7]) then return true end
    -- Its new group may have been dropped since.
    if r[3] ~= '' and r[3] ~= r[4] and not known[r[3]] and redis.call('SISMEMBER', KEYS[2], r[3]) == 0 then return true end
    here[r[1]] = true
  end
  for _, r in ipairs(change.gone) do
    if not is_as_found('rule:' .. r[1], r[4]) then return true end
    here[r[1]] = true
  end
  for _, id in ipairs(change.dropped) do
    for _, rule in ipairs(redis.call('SMEMBERS', P .. 'group:' .. id .. ':rules')) do
      local text = not here[rule] and redis.call('GET', P .. 'rule:' .. rule)
      local is_json, document = pcall(cjson.decode, text or '')
      if is_json and type(document) == 'table' and document.group_id == id then return true end -- it came since
    end
  end
  return false
end
if not differs() then return { 1, version } end
if has_moved() then return { 0, version } end
local function is_stopped(id) return redis.call('HDEL', KEYS[5], id .. ':stopped_ms') == 1 end
local function let_go(id)
  if is_stopped(id) then
    redis.call('XADD', ctx.prefix .. 'station:faults', 'MAXLEN', '~', 10000, '*', 'code', 'rule_loop', 'source', 'rulesrv:' .. id,
      'level', 'High', 'message', 'the rule was changed', 'state', 'clear', 'at', string.format('%.0f', ctx.now))
  end
end
-- Where the feed ends now: the ids of all later entries are greater. In a cluster channels have feeds of their own, so there the
-- clock must do.
local function feed_end()
  local time = redis.call('TIME')
  local ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local last = redis.call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', 1)[1]
  if last and tonumber(string.match(last[1], '^%d+')) >= ms then return last[1] end
  return string.format('%.0f-18446744073709551615', ms - 1)
end
local since
for _, g in ipairs(change.groups) do
  redis.call('SET', P .. 'group:' .. g[1], g[2])
  redis.call('SADD', KEYS[2], g[1])
end
for _, r in ipairs(change.rules) do
  local id = r[1]
  redis.call('SET', P .. 'rule:' .. id, r[2])
  redis.call('SADD', KEYS[1], id)
  if r[4] ~= '' and r[4] ~= r[3] then redis.call('SREM', P .. 'group:' .. r[4] .. ':rules', id) end
  if r[3] ~= '' then redis.call('SADD', P .. 'group:' .. r[3] .. ':rules', id) end
  let_go(id)
  if r[5] ~= '' then
    redis.call('HDEL', KEYS[4], id)
    alarm_end_rule(ctx, id, r[5])
  end
  if r[6] == 1 then
    since = since or feed_end()
    redis.call('HSET', KEYS[6], id, since)
    if KEYS[8] then redis.call('HSETNX', KEYS[8], 'rulesrv', since) end -- the feed is held for an engine that has never run
  elseif r[5] == 'disabled' then
    redis.call('HDEL', KEYS[6], id)
  end
end
for _, r in ipairs(change.gone) do
  local id = r[1]
  redis.call('UNLINK', P .. 'rule:' .. id, P .. 'history:' .. id)
  redis.call('SREM', KEYS[1], id)
  if r[2] ~= '' then redis.call('SREM', P .. 'group:' .. r[2] .. ':rules', id) end
  let_go(id)
  redis.call('HDEL', KEYS[4], id)
  redis.call('HDEL', KEYS[6], id)
  for _, word in ipairs({ 'executions', 'triggered', 'failed', 'ms' }) do -- of removed rules together: a sum never falls
    local count = tonumber(redis.call('HGET', KEYS[5], id .. ':' .. word) or '')
    if count then alarm_count(KEYS[5], ':' .. word, string.format('%.0f', count)) end
  end
  for _, word in ipairs({ 'executions', 'triggered', 'failed', 'ms', 'last_ms', 'fired_ms' }) do
    redis.call('HDEL', KEYS[5], id .. ':' .. word)
  end
  if r[3] ~= '' then alarm_end_rule(ctx, id, r[3]) end
end
for _, id in ipairs(change.dropped) do
  redis.call('UNLINK', P .. 'group:' .. id, P .. 'group:' .. id .. ':rules')
  redis.call('SREM', KEYS[2], id)
end
-- The first number after a loss of everything is none that anybody may remember from before.
local t = redis.call('TIME')
redis.call('SET', KEYS[3], string.format('%d%03d000', t[1], math.floor(t[2] / 1000)), 'NX')
return { 1, tostring(redis.call('INCR', KEYS[3])) }

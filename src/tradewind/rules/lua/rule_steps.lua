-- What a judged rule brings about, step by step. Shared by rule_commit, rule_apply and rule_done; needs alarms/alarm.
-- A step is a msgpack list: {'raise', rule id, fields of alarm_raise}; {'clear', rule id, source, actual value};
-- {'told', rule id, execution as JSON, 1 if triggered, 1 if failed, ms it took}; {'act', rule id, body of the outbox entry};
-- {'tell', rule id, fields and values of a notification}; {'stop', rule id, message}: the loop guard stops the rule.
-- ctx: as in alarms/alarm, with history_keep (executions per rule) and history_ms.
-- Keys built here from the prefix: rulesrv:history:{id}, rulesrv:rule:{id}, rulesrv:figures, rulesrv:outbox,
-- station:faults; by alarms/alarm: notify:outbox and its own.

local function rule_told(ctx, step)
  local prefix, rule = ctx.prefix, step[2]
  if redis.call('EXISTS', prefix .. 'rulesrv:rule:' .. rule) == 0 then return end
  local key, figures = prefix .. 'rulesrv:history:' .. rule, prefix .. 'rulesrv:figures'
  redis.call('LPUSH', key, step[3])
  redis.call('LTRIM', key, 0, ctx.history_keep - 1)
  for _ = 1, 100 do
    local oldest = redis.call('LINDEX', key, -1)
    local at = oldest and tonumber(string.match(oldest, '"timestamp":(%d+)'))
    if not at or at >= ctx.now - ctx.history_ms then break end
    redis.call('RPOP', key)
  end
  redis.call('PEXPIRE', key, string.format('%.0f', ctx.history_ms))
  alarm_count(figures, rule .. ':executions', 1)
  if step[4] == 1 then
    alarm_count(figures, rule .. ':triggered', 1)
    local at = string.match(step[3], '"timestamp":(%d+)') or string.format('%.0f', ctx.now)
    redis.call('HSET', figures, rule .. ':fired_ms', at)
  end
  if step[5] == 1 then alarm_count(figures, rule .. ':failed', 1) end
  alarm_count(figures, rule .. ':ms', string.format('%.0f', step[6]))
  redis.call('HSET', figures, rule .. ':last_ms', string.format('%.0f', ctx.now))
end

local function rule_step(ctx, step)
  local kind = step[1]
  if kind == 'raise' then
    alarm_raise(ctx, step[3])
  elseif kind == 'clear' then
    alarm_clear(ctx, step[2], step[3], step[4], ctx.now)
  elseif kind == 'told' then
    rule_told(ctx, step)
  elseif kind == 'act' then
    redis.call('XADD', ctx.prefix .. 'rulesrv:outbox', '*', 'rule_id', step[2], 'body', step[3])
  elseif kind == 'tell' then
    notify_put(ctx, unpack(step[3]))
  elseif kind == 'stop' then
    local now = string.format('%.0f', ctx.now)
    redis.call('HSET', ctx.prefix .. 'rulesrv:figures', step[2] .. ':stopped_ms', now)
    redis.call('XADD', ctx.prefix .. 'station:faults', 'MAXLEN', '~', 10000, '*', 'code', 'rule_loop', 'source', 'rulesrv:' .. step[2],
      'level', 'High', 'message', step[3], 'state', 'raise', 'at', now)
  end
end

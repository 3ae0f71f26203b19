#!lua flags=allow-oom
-- Stop a running cycle, a component or a node of it. Waiting and queued nodes end now, running ones are asked to stop.
-- KEYS 1 flow:{f}:cycle:{n}
-- ARGV 6 flow 7 cycle 8 stopped|timeout|component|node|signal 9 component or node id, of a signal `component or all:source` 10 reason
--   11 bound of flow:outbox
-- Component: the seed's stop flag is set and its nodes are skipped. Node: the seed's terminate flag is set; a waiting node ends terminated.
-- Signal: a STOP_EXECUTION from outside, a successful early end. Returns 1 done, 0 the cycle has ended (or the node has), -1 unknown cycle, -2 unknown component or node.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
OUTBOX_MAX = ARGV[11]
local c, what, which, reason = cycle_of(ARGV[6], ARGV[7]), ARGV[8], ARGV[9], ARGV[10]
if not c then return -1 end
if what == 'node' and not node_of(c, which) then return -2 end
if what == 'component' and redis.call('HEXISTS', c.plan_key, ':' .. which) == 0 then return -2 end
if c.status ~= 'running' then return 0 end
if what == 'component' then
  redis.call('SET', c.key .. ':component:' .. which .. ':stop', '1', 'EX', 3600)
  log_line(c, 'WARNING', 'Component ' .. which .. ' stopped: ' .. reason)
  halt(c, nodes_of(c, which), 'skipped', 'component_stopped')
elseif what == 'signal' then
  local component, source = string.match(which, '^([^:]*):(.*)$')
  if redis.call('HEXISTS', c.key, 'stopped_by') == 1 or redis.call('HEXISTS', c.plan_key, ':' .. component) == 0 then return 0 end
  redis.call('HSET', c.key, 'stopped_by', source, 'stop_reason', reason, 'stop_scope', component == 'all' and 'flow' or 'component')
  log_line(c, 'WARNING', 'Stopped by ' .. source .. ': ' .. reason)
  halt(c, nodes_of(c, component), 'terminated', 'Stopped by ' .. source .. ': ' .. reason)
elseif what == 'node' then
  local done = redis.call('HEXISTS', c.key .. ':done', which)
  if done == 1 then return 0 end
  redis.call('SET', P .. 'trading_flow:node:' .. task_of(c, which) .. ':terminate',
    '{"reason":' .. quote(reason) .. ',"timestamp":"' .. AT .. '"}', 'EX', 3600)
  log_line(c, 'WARNING', 'Node ' .. which .. ' terminated: ' .. reason)
  if cancel(task_of(c, which), 3600000, '300000', true) ~= 2 then
    end_node(c, which, 'terminated', '', '0', reason, nil, '!failed')
  end
else
  stop_cycle(c, what, reason)
end
settle_cycles()
return 1

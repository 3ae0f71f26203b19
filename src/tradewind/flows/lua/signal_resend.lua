#!lua flags=allow-oom
-- Queues of a running cycle were lost on the broker and are declared again: what was sent to them and has not arrived is sent again.
-- KEYS 1 flow:{f}:cycle:{n}:sent. ARGV 6 flow 7 cycle 8 bound of flow:outbox, then ids of the nodes whose queues were lost
-- Returns how many signals are sent again; -1 when the cycle does not run.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
OUTBOX_MAX = ARGV[8]
local c = cycle_of(ARGV[6], ARGV[7])
if not c or c.status ~= 'running' then return -1 end
local lost, names, again = {}, {}, {}
for at = 9, #ARGV do
  lost[ARGV[at]] = true
  names[#names + 1] = ARGV[at]
end
for _, field in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if lost[string.match(field, '%.to%.([^.]+)%.handle%.[^.]+$')] then again[#again + 1] = field end
end
push('SREM', KEYS[1], again)
if #again > 0 then redis.call('ZADD', P .. 'flows:unsent', '0', c.name) end
log_line(c, 'WARNING', 'The broker lost the queues of ' .. table.concat(names, ', ') .. ': declared again, ' .. #again
  .. ' signals are sent again; what foreign programs had published there is gone')
flush_records()
wake_on(P .. 'flows:wake')
return #again

#!lua flags=allow-oom
-- The queues of a held cycle exist: start what is ready. Repeating it changes nothing.
-- KEYS 1 flows:held. ARGV 6 flow 7 cycle 8 bound of flow:outbox
-- Returns 1, or 0 when the cycle has ended.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
OUTBOX_MAX = ARGV[8]
local c = cycle_of(ARGV[6], ARGV[7])
local is_running = c and c.status == 'running'
if is_running then
  foresee(c, nodes_of(c, 'all'))
  for _, id in ipairs(nodes_of(c, 'all')) do
    local input, node = c.key .. ':in:' .. id, node_of(c, id)
    local f = redis.call('HMGET', input, 'n', 'failed', 'skipped', 'absent')
    local came = { target = id, n = tonumber(f[1] or '0'), failed = tonumber(f[2] or '0'), skipped = tonumber(f[3] or '0'),
      absent = tonumber(f[4] or '0') }
    if came.n >= node.i and redis.call('EXISTS', T .. task_of(c, id)) == 0 then c.todo[#c.todo + 1] = came end
  end
end
redis.call('ZREM', KEYS[1], ARGV[6] .. ':' .. ARGV[7])
settle_cycles()
return is_running and 1 or 0

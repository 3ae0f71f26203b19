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
  for _, id in ipairs(nodes_of(c, 'all')) do
    local n = redis.call('HGET', c.key .. ':in:' .. id, 'n') or '0'
    local begun = redis.call('HGET', T .. task_of(c, id), 'at') or '-1' -- or it is of an earlier flow of that name
    if tonumber(n) >= node_of(c, id).i and redis.call('HEXISTS', c.key .. ':done', id) == 0
        and tonumber(begun) < tonumber(c.start) then
      c.todo[#c.todo + 1] = id
    end
  end
end
redis.call('ZREM', KEYS[1], ARGV[6] .. ':' .. ARGV[7])
settle_cycles()
return is_running and 1 or 0

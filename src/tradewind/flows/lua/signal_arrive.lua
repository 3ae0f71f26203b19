#!lua flags=allow-oom
-- Signals that come from outside a commit (the broker, an operator, a foreign program) arrive at their nodes.
-- KEYS 1 worker:{id} 2 worker:{id}:inflight 3 worker:{id}:queue (of the worker that may run what becomes ready; or any)
-- ARGV 6 worker id or '' 7 its generation 8 its capacity 9 bound of flow:outbox, then per signal: flow, cycle, node, body as JSON or a
--   tombstone (`!skipped`, `!failed`), '1' if it goes on record, how many edges it may stand for, those edge keys (the first one that is open is taken)
-- Returns {per signal 1 arrived, 2 had arrived before, 0 the cycle has ended or is unknown, -1 no such node; then as node_commit}.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
OUTBOX_MAX = ARGV[9]
if ARGV[6] ~= '' and redis.call('HGET', KEYS[1], 'gen') == ARGV[7] and redis.call('HGET', KEYS[1], 'status') == 'active' then
  me, room = ARGV[6], tonumber(ARGV[8]) - redis.call('ZCARD', KEYS[2]) - redis.call('LLEN', KEYS[3])
end
local verdicts, at = {}, 10
while at <= #ARGV do
  local c, id, edges = cycle_of(ARGV[at], ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 5])
  local verdict = 0
  if c and c.status == 'running' then
    verdict = node_of(c, id) and 2 or -1
    local listens = {}
    for _, handle in ipairs(verdict == 2 and node_of(c, id).x or {}) do listens['*:*->' .. handle] = true end
    for e = at + 6, at + 5 + edges do
      local has_come
      if verdict == 2 and listens[ARGV[e]] then
        has_come = redis.call('HSETNX', c.key .. ':in:' .. id, ARGV[e], ARGV[at + 3]) == 1
        if has_come then run_soon(task_of(c, id)) end
      elseif verdict == 2 then
        local source, handle, target_handle = string.match(ARGV[e], '^([^:]*):(.-)%->(.*)$')
        local sender, optional = node_of(c, source), 0
        for _, wire in ipairs(sender and sender.o or {}) do
          if wire[1] == handle and wire[2] == id and wire[3] == target_handle then optional = wire[4] end
        end
        has_come = arrive(c, id, ARGV[e], ARGV[at + 3], optional)
        if c.amqp and sender then -- it need not be sent again
          local field = plain_key(c, sender.k, source, handle, id, target_handle)
          if redis.call('HDEL', c.key .. ':unsent', field) == 1 then redis.call('SREM', c.key .. ':sent', field) end
        end
      end
      if has_come then
        verdict = 1
        if ARGV[at + 4] == '1' then
          record('{"k":"signal","flow":"' .. c.flow .. '","cycle":' .. c.n .. ',"sig":' .. ARGV[at + 3] .. ',"to":[["' .. id .. '","'
            .. string.match(ARGV[e], '->(.*)$') .. '"]]}')
        end
      end
    end
  end
  verdicts[#verdicts + 1] = verdict
  at = at + 6 + edges
end
settle_cycles()
return { verdicts, given }

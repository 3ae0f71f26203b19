#!lua flags=allow-oom
-- Brings the end of a node's task, which came without the room's own commit (cancelled, deadline, lost too often, run by a
-- foreign worker), into its cycle, and takes it off the list. Repeating it changes nothing. Over the broker, tombstones are sent, too:
-- a foreign worker may have published outputs itself, which then stand before them in the queues of its successors.
-- KEYS 1 task:ended:flows
-- ARGV 6 bound of flow:outbox, then per node: task id, SUCCESS|FAILED|DEAD|TIMEOUT|CANCELLED, message, flow, cycle, node ('' flow:
--   only taken off the list), outputs ('' or msgpack handle → signal as JSON), worker id
-- Returns how many nodes ended by this.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
local ENDS = { SUCCESS = 'completed', FAILED = 'failed', DEAD = 'failed', TIMEOUT = 'failed', CANCELLED = 'terminated' }
OUTBOX_MAX, unsent_since = ARGV[6], '0'
local n = 0
for at = 7, #ARGV, 8 do
  local id, status = ARGV[at], ARGV[at + 1]
  local c = ARGV[at + 3] ~= '' and cycle_of(ARGV[at + 3], ARGV[at + 4])
  if c and c.status == 'running' and node_of(c, ARGV[at + 5]) then
    local outputs = status == 'SUCCESS' and (ARGV[at + 6] ~= '' and cmsgpack.unpack(ARGV[at + 6]) or {}) or nil
    local start = redis.call('HGET', T .. id, 'start') or '0'
    tombstones_travel = true
    local message = status == 'CANCELLED' and why_cancelled(c, ARGV[at + 5], ARGV[at + 2]) or ARGV[at + 2]
    if end_node(c, ARGV[at + 5], ENDS[status], ARGV[at + 7], start, message, outputs,
        status == 'SUCCESS' and '!skipped' or '!failed') then n = n + 1 end
    tombstones_travel = false
  end
  redis.call('LREM', KEYS[1], 1, id)
end
settle_cycles()
return n

#!lua flags=allow-oom
-- A worker commits how its nodes ended and gets those of their successors that became ready, as far as it has room.
-- Only the token that stands in the worker's in-flight set counts. A cancel that was asked for turns failures into CANCELLED.
-- KEYS 1 worker:{id} 2 worker:{id}:inflight 3 worker:{id}:queue 4 queue:delayed 5 task:marked
-- ARGV 6 worker id 7 its generation 8 its capacity, 0 = give nothing 9 bound of flow:outbox, then per node: task id, token,
--   type, SUCCESS|FAILED|DEAD|TIMEOUT|CANCELLED|RETRYING|SUSPENDED, request line, outcome line, ms until it runs again, short
--   error, flow, cycle, node, outputs ('' or msgpack handle → signal as JSON), stop ('' or msgpack {reason, scope}), state that
--   a suspended node leaves, log records as JSON ('' or joined by commas), signals from outside that it has seen ('' or msgpack edge keys)
-- Returns {per node 1 committed, 2 committed before by this token, 0 refused; then flat {n, then per given node: as task_take,
--   plan version, its inputs as HGETALL}}.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
local STRIDE, FROM = 16, 10
OUTBOX_MAX = ARGV[9]
local worker, ids, gone, verdicts = ARGV[6], {}, {}, {}
for at = FROM, #ARGV, STRIDE do ids[#ids + 1] = ARGV[at] end
local tokens = redis.call('ZMSCORE', KEYS[2], unpack(ids))
for i = 1, #ids do
  if tokens[i] == ARGV[FROM + (i - 1) * STRIDE + 1] then gone[#gone + 1] = ids[i] end
end
push('ZREM', KEYS[2], gone)
local capacity = tonumber(ARGV[8])
local known = capacity > 0 and redis.call('HMGET', KEYS[1], 'gen', 'status')
if known and known[1] == ARGV[7] and known[2] == 'active' then
  me, room = worker, capacity - redis.call('ZCARD', KEYS[2]) - redis.call('LLEN', KEYS[3])
end
local ENDS = { SUCCESS = 'completed', FAILED = 'failed', DEAD = 'failed', TIMEOUT = 'failed', CANCELLED = 'terminated' }
local stops, batch = {}, {}
for i = 1, #ids do
  local at = FROM + (i - 1) * STRIDE
  local c = cycle_of(ARGV[at + 8], ARGV[at + 9])
  serves[ARGV[at + 2]] = true -- it has just run one
  if c then
    batch[c] = batch[c] or {}
    table.insert(batch[c], ARGV[at + 10])
  end
end
for c, nodes in pairs(batch) do foresee(c, nodes) end
for i = 1, #ids do
  local at = FROM + (i - 1) * STRIDE
  local id, kind, status = ids[i], ARGV[at + 2], ARGV[at + 3]
  local key = T .. id
  if tokens[i] == ARGV[at + 1] then
    local more = rare(id, '1')
    local c, node = cycle_of(ARGV[at + 8], ARGV[at + 9]), ARGV[at + 10]
    if redis.call('DEL', P .. 'task:cancel:' .. id) == 1 and status ~= 'SUCCESS' then status = 'CANCELLED' end
    if ARGV[at + 14] ~= '' then record(ARGV[at + 14]) end
    more.hook = nil
    if status == 'RETRYING' or status == 'SUSPENDED' then
      local due = now + tonumber(ARGV[at + 6])
      if status == 'RETRYING' and c then leave_children(c, node, 'node ' .. node .. ' of ' .. c.flow .. ' is tried again') end
      if status == 'SUSPENDED' then
        local input = c and c.key .. ':in:' .. node
        redis.call('HSET', key, 'n', math.max(0, tonumber(more.n or '1') - 1)) -- it did not fail: not an attempt
        if c then
          redis.call('HSET', input, 'state', ARGV[at + 13])
          redis.call('EXPIRE', input, WEEK)
          local kids = redis.call('HGET', input, 'kids')
          if kids and tonumber(kids) <= 0 then due = now end
          local seen = {}
          for _, edge in ipairs(ARGV[at + 15] ~= '' and cmsgpack.unpack(ARGV[at + 15]) or {}) do seen[edge] = true end
          for _, handle in ipairs(node_of(c, node).x or {}) do -- a signal from outside came while it ran
            if not seen['*:*->' .. handle] and redis.call('HEXISTS', input, '*:*->' .. handle) == 1 then due = now end
          end
        end
      end
      redis.call('HSET', key, 'status', 'RETRYING', 'due', int(due), 'err', ARGV[at + 7])
      redis.call('ZADD', KEYS[4], string.format('%.3f', due / 1000), id)
      redis.call('SREM', KEYS[5], id)
      redis.call('SREM', P .. 'worker_tasks:' .. worker, id) -- any worker may go on with it
      if more.c then uncache(id) end
      count('retrying', 1)
      announce('retrying', id, kind)
      if c and c.status == 'running' and redis.call('HEXISTS', c.key .. ':done', node) == 0 then
        show(c, node, node_of(c, node), 'pending', worker, ARGV[at + 7], '0')
        tell('node_pending', c, node, 'pending')
      end
      later = true
    else
      local start = more.start or NOW
      close(id, status, kind, more, nil, ARGV[at + 4] .. '\n' .. ARGV[at + 5])
      if c and c.status == 'running' then
        local outputs = status == 'SUCCESS' and (ARGV[at + 11] ~= '' and cmsgpack.unpack(ARGV[at + 11]) or {}) or nil
        local message = status == 'CANCELLED' and why_cancelled(c, node, ARGV[at + 7]) or ARGV[at + 7]
        if end_node(c, node, ENDS[status], worker, start, message, outputs, status == 'SUCCESS' and '!skipped' or '!failed')
            and ARGV[at + 12] ~= '' and status == 'SUCCESS' then
          stops[#stops + 1] = { c, node, cmsgpack.unpack(ARGV[at + 12]) }
        end
      end
    end
    verdicts[i] = 1
  else
    local f = redis.call('HMGET', key, 'status', 'tok')
    verdicts[i] = f[2] == ARGV[at + 1] and f[1] ~= 'PROCESSING' and 2 or 0
  end
end
for _, s in ipairs(stops) do -- a successful early end: what is left of the component, or of all, does not run
  local c, node, asked = s[1], s[2], s[3]
  redis.call('HSET', c.key, 'stopped_by', node, 'stop_reason', asked[1], 'stop_scope', asked[2])
  log_line(c, 'WARNING', 'Stopped by ' .. node .. ': ' .. asked[1])
  halt(c, nodes_of(c, asked[2] == 'flow' and 'all' or node_of(c, node).k), 'terminated', 'Stopped by ' .. node .. ': ' .. asked[1])
end
settle_cycles()
if #gone > 0 and redis.call('EXISTS', P .. 'queue:normal', P .. 'queue:high', P .. 'queue:parked') > 0 then wake() end
return { verdicts, given }

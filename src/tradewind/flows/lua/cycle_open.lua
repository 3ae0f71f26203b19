#!lua
-- Start a cycle: its records, its nodes, and the tasks of those that wait for nothing. Old cycles leave.
-- KEYS 1 flow:{f} 2 flow:{f}:cycles 3 flow:{f}:running 4 flows:due 5 flows:deadlines 6 scheduler:leader 7 scheduler:epoch
--   8 task:outbox:count. Also touches: flows:held, the parent's flow:{f}:cycle:{n}:in:{node}, and what cycle.lua names.
-- ARGV 6 flow 7 scheduler id ('' = not by the leader) 8 epoch 9 plan version that the caller knows 10 slot ms 11 due ms as the caller read it
--   ('' = the schedule is left alone) 12 next due ms ('' = none) 13 overlap policy 14 trigger 15 request as JSON ('' none) 16 ms until the deadline
--   17 cycles to keep 18 '1' over the broker 19 bound of flow:outbox 20 parent `flow:cycle:node` or '' 21 slots missed 22 bound of task:outbox
--   23 run id ('' none): a repeat with the same one answers the same cycle 24 what happens on failure ('' isolate)
--   25 number of nodes of a partial run (-1 = all), those ids, then signals given: node, edge key, body or '!skipped', '1' if it is counted
-- Returns {1, cycle} started; {2, 'buffered'|'skipped'|'waits'} an earlier one runs; {0} the schedule has moved on; {-1} not the leader;
--   {-2} another version is registered; {-3} no such flow; {-4, status} it does not run; {-5} the archive is full; {-6, cycles…} stop these first.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
local flow, id = KEYS[1], ARGV[6]
OUTBOX_MAX = ARGV[19]
if ARGV[7] ~= '' and (redis.call('GET', KEYS[6]) ~= ARGV[7] or redis.call('GET', KEYS[7]) ~= ARGV[8]) then return { -1 } end
local f = redis.call('HMGET', flow, 'status', 'version', 'last_cycle', 'run_id', 'run_cycle')
if not f[1] then return { -3 } end
local parent
if ARGV[20] ~= '' then
  local pf, pn, pnode = string.match(ARGV[20], '^([^:]+):(%d+):(.+)$')
  parent = F .. pf .. ':cycle:' .. pn .. ':in:' .. pnode
  local child = ARGV[23] ~= '' and redis.call('HGET', parent, 'child ' .. ARGV[23])
  if child then return { 1, tonumber(child) } end
  if redis.call('HEXISTS', F .. pf .. ':cycle:' .. pn .. ':done', pnode) == 1 then return { -4, 'wanted by a node that has ended' } end
elseif ARGV[23] ~= '' and f[4] == ARGV[23] then
  return { 1, tonumber(f[5]) }
end
if f[1] == 'deleting' then return { -4, f[1] } end
if f[2] ~= ARGV[9] then return { -2 } end
local is_slot = ARGV[11] ~= ''
if is_slot then
  local due = redis.call('ZSCORE', KEYS[4], id)
  if f[1] ~= 'running' then return { -4, f[1] } end
  if not due or tonumber(due) ~= tonumber(ARGV[11]) then return { 0 } end
end
if IS_ARCHIVED and tonumber(redis.call('GET', KEYS[8]) or '0') >= tonumber(ARGV[22]) then return { -5 } end

local function move_on()
  if not is_slot then return end
  if ARGV[12] == '' then
    redis.call('ZREM', KEYS[4], id)
    redis.call('HSET', flow, 'next_execution', '0')
  else
    redis.call('ZADD', KEYS[4], ARGV[12], id)
    redis.call('HSET', flow, 'next_execution', string.format('%.3f', tonumber(ARGV[12]) / 1000))
  end
  if ARGV[21] ~= '0' then redis.call('HINCRBY', flow, 'missed', ARGV[21]) end
end
local policy = ARGV[13]
if policy ~= 'allow' and redis.call('SCARD', KEYS[3]) > 0 then
  if policy == 'wait' then return { 2, 'waits' } end
  if policy == 'cancel_previous' then return { -6, unpack(redis.call('SMEMBERS', KEYS[3])) } end
  move_on()
  if policy == 'buffer_latest' then
    if redis.call('HGET', flow, 'buffered_ms') then redis.call('HINCRBY', flow, 'missed', 1) end
    redis.call('HSET', flow, 'buffered_ms', ARGV[10])
    return { 2, 'buffered' }
  end
  redis.call('HINCRBY', flow, 'skipped', 1)
  return { 2, 'skipped' }
end
move_on()

-- Old cycles leave: the oldest that have ended, a few at a time.
-- include: forget
-- A node of a running cycle has yet to read how this one ended.
local function is_awaited(child, number)
  local of, at = string.match(redis.call('HGET', F .. child .. ':cycle:' .. number, 'parent') or '', '^([^:]+):(%d+):')
  return of and redis.call('SISMEMBER', F .. of .. ':running', at) == 1
end
local kept = redis.call('ZCARD', KEYS[2]) + 1
if kept > tonumber(ARGV[17]) then
  local many = 0
  for _, old in ipairs(redis.call('ZRANGE', KEYS[2], 0, kept - tonumber(ARGV[17]) + 2)) do
    if kept - many > tonumber(ARGV[17]) and redis.call('SISMEMBER', KEYS[3], old) == 0 and not is_awaited(id, old) then
      forget(id, old, f[2])
      many = many + 1
    end
  end
end

local n = int(tonumber(f[3] or '-1') + 1)
local key, partial = F .. id .. ':cycle:' .. n, tonumber(ARGV[25])
local meta = cmsgpack.unpack(redis.call('HGET', F .. id .. ':plan:' .. f[2], ':all'))
local chosen, at = nil, 26
if partial >= 0 then
  chosen = {}
  for i = at, at + partial - 1 do chosen[ARGV[i]] = true end
  at = at + partial
end
redis.call('UNLINK', key, key .. ':done')
redis.call('HSET', key, 'flow_id', id, 'cycle', n, 'status', 'running', 'start_time', AT, 'end_time', '', 'start_ms', NOW,
  'version', f[2], 'trigger', ARGV[14], 'slot_ms', ARGV[10], 'total', #meta, 'open', #meta, 'completed', 0, 'failed', 0,
  'skipped', 0, 'terminated', 0, 'amqp', ARGV[18])
if ARGV[15] ~= '' then redis.call('HSET', key, 'request', ARGV[15]) end
if ARGV[20] ~= '' then redis.call('HSET', key, 'parent', ARGV[20]) end
if ARGV[24] ~= '' then redis.call('HSET', key, 'on_failure', ARGV[24]) end
redis.call('EXPIRE', key, WEEK)
redis.call('HSET', flow, 'last_cycle', n)
redis.call('HDEL', flow, 'buffered_ms')
if parent then
  redis.call('HINCRBY', parent, 'kids', 1)
  redis.call('HSET', parent, 'open ' .. id .. ' ' .. n, '1')
  if ARGV[23] ~= '' then redis.call('HSET', parent, 'child ' .. ARGV[23], n) end
elseif ARGV[23] ~= '' then
  redis.call('HSET', flow, 'run_id', ARGV[23], 'run_cycle', n)
end
redis.call('ZADD', KEYS[2], n, n)
redis.call('SADD', KEYS[3], n)
redis.call('ZADD', KEYS[5], int(now + tonumber(ARGV[16])), id .. ':' .. n)
push('SADD', key .. ':nodes', meta)
redis.call('EXPIRE', key .. ':nodes', WEEK)
local c = cycle_of(id, n)
log_line(c, 'INFO', 'Starting cycle ' .. n)
record('{"k":"cycle","flow":"' .. id .. '","cycle":' .. n .. ',"status":"running","trigger":"' .. ARGV[14] .. '","slot":' .. ARGV[10]
  .. ',"start":' .. NOW .. ',"end":0,"counts":{"total":' .. #meta .. ',"completed":0,"failed":0,"skipped":0,"terminated":0},"stopped_by":"","error":""}')
tell('cycle_started', c, nil, 'running')
local tids, ready, old = {}, {}, {}
foresee(c, meta)
for _, node_id in ipairs(meta) do
  local node = node_of(c, node_id)
  local tid = task_of(c, node_id)
  tids[#tids + 1] = tid
  old[#old + 1] = T .. tid
  old[#old + 1] = P .. 'task:cancel:' .. tid
  if chosen and not chosen[node_id] then
    end_node(c, node_id, 'skipped', '', '0', 'not part of this run', nil, '!skipped', true)
  else
    show(c, node_id, node, 'pending', '', 'Waiting for its inputs', '0')
    if node.i == 0 then ready[#ready + 1] = node_id end
  end
end
push('SADD', P .. 'node_tasks_list', tids)
for from = 1, #old, 1000 do redis.call('UNLINK', unpack(old, from, math.min(from + 999, #old))) end -- of an earlier flow of that name
for i = at, #ARGV, 4 do
  if ARGV[i + 3] == '1' then
    arrive(c, ARGV[i], ARGV[i + 1], ARGV[i + 2])
  else
    redis.call('HSETNX', key .. ':in:' .. ARGV[i], ARGV[i + 1], ARGV[i + 2])
    redis.call('EXPIRE', key .. ':in:' .. ARGV[i], WEEK)
  end
end
if ARGV[18] == '1' then -- its queues come first: the leader declares them and lets it go (cycle_release)
  count_arrivals(c)
  c.todo = {}
  redis.call('ZADD', P .. 'flows:held', NOW, c.name)
  wake_on(P .. 'flows:wake')
else
  for _, node_id in ipairs(ready) do
    c.todo[#c.todo + 1] = { target = node_id, n = 0, failed = 0, skipped = 0, absent = 0 }
  end
end
settle_cycles()
return { 1, tonumber(n) }

#!lua
-- Compare the indexes of flows, cycles and node tasks with the records, and bring them back to what these say.
-- KEYS 1 flows
-- ARGV 6 mode 7 number of entries of indexes, per entry the key without the prefix, the member or field, its value; then names of
--   records. Entries with a name in angle brackets are answers to questions of an earlier call: <deadline> `flow:cycle` and ms when
--   it times out, <trigger> flow and `version triggers as JSON` ('' none).
-- Keys built here: flow:{f}, flow:{f}:cycles, flow:{f}:running, flow:{f}:plan:{version}, flow:{f}:cycle:{n} and its :nodes, :done,
--   :unsent, :sent; flows:…, node_tasks:{id}, node_tasks_list, worker_tasks:{w}, task:{id}, task:ended:flows.
-- Returns what redis/repair.lua says.
-- include: tasks/shared
-- include: redis/repair
local F, S = P .. 'flow:', P .. 'flows:'
local WEEK = '604800'
local WAKE = function() wake_on(S .. 'wake') end
local function status_of(flow, n) return fields(F .. flow .. ':cycle:' .. n, 'status')[1] end
local function split(name) return string.match(name, '^(.+):(%d+)$') end
local function is_running(name)
  local flow, n = split(name)
  return flow and status_of(flow, n) == 'running'
end
local function about(name)
  local flow, n = split(name)
  if not flow then return 'has ' .. name .. ' which is no flow:cycle' end
  local status = status_of(flow, n)
  return status and 'has cycle ' .. name .. ' which is ' .. status or 'names cycle ' .. name .. ' which has no record'
end

local function look_at_flow(id)
  local key = F .. id
  local f = fields(key, 'id', 'status', 'version', 'structure', 'next_execution', 'buffered_ms')
  if not (f[1] and f[2] and f[3] and f[4]) then
    if redis.call('EXISTS', key) == 1 then
      wrong('n', key, 'is no whole flow: it lacks its id, status, version or structure. Apply the flow again')
    end
    return
  end
  if not redis.call('ZSCORE', KEYS[1], id) then wrong('m', KEYS[1], 'misses flow ' .. id, { 'ZADD', KEYS[1], 0, id }) end
  local plan = redis.call('EXISTS', key .. ':plan:' .. f[3]) == 1
  if not plan then
    wrong('n', key .. ':plan:' .. f[3], 'is gone: no cycle of the flow can start. Apply the flow again')
  else
    wrong('?', 'trigger', id)
  end
  local due = tonumber(f[5] or '') or 0
  if f[2] == 'running' and due > 0 and not redis.call('ZSCORE', S .. 'due', id) then
    wrong('m', S .. 'due', 'misses flow ' .. id, { 'ZADD', S .. 'due', int(math.floor(due * 1000 + 0.5)), id }, WAKE)
  end
  if redis.call('SCARD', key .. ':running') == 0 then
    if f[2] == 'draining' or f[2] == 'stopping' then
      wrong('m', key, 'is ' .. f[2] .. ' although no cycle of it runs', { 'HSET', key, 'status', 'stopped' })
    elseif f[2] == 'running' and f[6] and not redis.call('LPOS', S .. 'ended', id) then
      wrong('m', S .. 'ended', 'misses flow ' .. id .. ', of which a slot waits', { 'RPUSH', S .. 'ended', id }, WAKE)
    end
  end
end

local function look_at_cycle(flow, n)
  local key, name = F .. flow .. ':cycle:' .. n, flow .. ':' .. n
  local f = fields(key, 'status', 'version', 'stop', 'amqp', 'start_ms')
  if not (f[1] and f[2]) then
    if redis.call('EXISTS', key) == 1 then wrong('n', key, 'is no cycle: it lacks its status or version') end
    return
  end
  if redis.call('EXISTS', F .. flow) == 0 then
    wrong('n', F .. flow, 'is gone, but cycle ' .. n .. ' of it is there. Apply the flow again, or restore it: `tradewind restore --from sql`')
    return
  end
  if not redis.call('ZSCORE', F .. flow .. ':cycles', n) then
    wrong('m', F .. flow .. ':cycles', 'misses cycle ' .. n, { 'ZADD', F .. flow .. ':cycles', n, n })
  end
  local packed = fields(F .. flow .. ':plan:' .. f[2], ':all')[1]
  local nodes = packed and cmsgpack.unpack(packed) or {}
  if redis.call('SCARD', key .. ':nodes') < #nodes then
    for _, node in ipairs(nodes) do
      if redis.call('SISMEMBER', key .. ':nodes', node) == 0 then
        wrong('m', key .. ':nodes', 'misses node ' .. node, { 'SADD', key .. ':nodes', node }, { 'EXPIRE', key .. ':nodes', WEEK })
      end
    end
  end
  if f[1] ~= 'running' then return end
  if redis.call('SISMEMBER', F .. flow .. ':running', n) == 0 then
    wrong('m', F .. flow .. ':running', 'misses cycle ' .. n, { 'SADD', F .. flow .. ':running', n })
  end
  if not f[3] and not redis.call('ZSCORE', S .. 'deadlines', name) then wrong('?', 'deadline', name) end
  if f[4] == '1' then
    if not redis.call('ZSCORE', S .. 'held', name) and redis.call('HEXISTS', S .. 'queues', name) == 0 then
      wrong('m', S .. 'held', 'misses cycle ' .. name .. ', whose queues are not declared', { 'ZADD', S .. 'held', tonumber(f[5] or '') and f[5] or NOW, name }, WAKE)
    end
    if not redis.call('ZSCORE', S .. 'unsent', name) and redis.call('HLEN', key .. ':unsent') > redis.call('SCARD', key .. ':sent') then
      wrong('m', S .. 'unsent', 'misses cycle ' .. name, { 'ZADD', S .. 'unsent', 0, name })
    end
  end
  for _, node in ipairs(nodes) do
    if redis.call('HEXISTS', key .. ':done', node) == 0 then
      local tid = flow .. '_' .. n .. '_' .. node
      local t = fields(T .. tid, 'status', 'hook')
      if TERMINAL[t[1]] and t[2] == 'flows' and not redis.call('LPOS', T .. 'ended:flows', tid) then
        wrong('m', T .. 'ended:flows', 'misses task ' .. tid .. ', whose end its cycle does not know',
          { 'RPUSH', T .. 'ended:flows', tid }, WAKE)
      end
    end
  end
end

local function look_at_node_task(id)
  local text = redis.call('GET', P .. 'node_tasks:' .. id)
  local is_json, record = pcall(cjson.decode, text or '')
  if not is_json or type(record) ~= 'table' then
    if text then wrong('n', P .. 'node_tasks:' .. id, 'is no JSON object: nobody can read this node task. It expires by itself, or delete it') end
    return
  end
  local list = P .. 'node_tasks_list'
  if redis.call('SISMEMBER', list, id) == 0 then wrong('m', list, 'misses node task ' .. id, { 'SADD', list, id }) end
  local worker = record.worker_id
  if type(worker) == 'string' and worker ~= '' then
    local set = P .. 'worker_tasks:' .. worker
    if redis.call('SISMEMBER', set, id) == 0 then
      wrong('m', set, 'misses node task ' .. id, { 'SADD', set, id }, { 'EXPIRE', set, WEEK })
    end
  end
end

local function look_at_entry(name, member)
  local key = P .. name
  if name == 'flows' then
    if redis.call('EXISTS', F .. member) == 0 then
      wrong('d', key, 'names flow ' .. member .. ' which has no record', { 'ZREM', key, member })
    end
  elseif name == 'flows:due' then
    local status = fields(F .. member, 'status')[1]
    if status ~= 'running' then
      local what = status and 'has flow ' .. member .. ' which is ' .. status or 'names flow ' .. member .. ' which has no record'
      wrong('m', key, what, { 'ZREM', key, member })
    end
  elseif name == 'flows:deadlines' or name == 'flows:held' then
    if not is_running(member) then wrong('m', key, about(member), { 'ZREM', key, member }) end
  elseif name == 'flows:hosts' or name == 'flows:queues' then
    if (name == 'flows:hosts' and not is_running(member)) or not split(member) then -- queues of ended cycles are deleted by the leader
      wrong('m', key, about(member), { 'HDEL', key, member })
    end
  elseif name == 'flows:unsent' then
    local flow, n = split(member)
    if not flow or redis.call('EXISTS', F .. flow .. ':cycle:' .. n .. ':unsent') == 0 then
      wrong('m', key, 'has cycle ' .. member .. ' of which nothing is to be sent', { 'ZREM', key, member })
    end
  elseif name == 'flows:triggers' or name == 'flows:trigger-states' then
    if redis.call('EXISTS', F .. string.match(member, '^%S*')) == 0 then
      wrong('m', key, 'names flow ' .. member .. ' which has no record', { 'HDEL', key, member })
    end
  elseif name == 'flows:ended' then
    if redis.call('EXISTS', F .. member) == 0 then
      wrong('m', key, 'names flow ' .. member .. ' which has no record', { 'LREM', key, 0, member })
    end
  elseif name == 'node_tasks_list' or string.match(name, '^worker_tasks:') then
    if redis.call('EXISTS', P .. 'node_tasks:' .. member) == 0 then
      wrong('t', key, 'names node task ' .. member .. ' which has no record', { 'SREM', key, member })
    end
  else
    local of, n = string.match(name, '^flow:([^:]+):cycle:(%d+):nodes$')
    local version = of and fields(F .. of .. ':cycle:' .. n, 'version')[1]
    if version and redis.call('EXISTS', F .. of .. ':plan:' .. version) == 1
      and redis.call('HEXISTS', F .. of .. ':plan:' .. version, member) == 0 then
      wrong('m', key, 'has node ' .. member .. ' which is not of the flow', { 'SREM', key, member })
    end
    local flow, what = string.match(name, '^flow:([^:]+):(%a+)$')
    if what == 'cycles' and redis.call('EXISTS', F .. flow .. ':cycle:' .. member) == 0 then
      wrong(string.match(member, '^%d+$') and 't' or 'm', key, 'names cycle ' .. member .. ' which has no record', { 'ZREM', key, member })
    elseif what == 'running' and status_of(flow, member) ~= 'running' then
      wrong('m', key, about(flow .. ':' .. member), { 'SREM', key, member }, WAKE)
    end
  end
end

local function look_again(what, id, value)
  if what == '<deadline>' then
    if is_running(id) and not redis.call('ZSCORE', S .. 'deadlines', id) then
      wrong('m', S .. 'deadlines', 'misses cycle ' .. id, { 'ZADD', S .. 'deadlines', value, id }, WAKE)
    end
  elseif what == '<trigger>' then
    local version, text = string.match(value, '^(%S+) (.*)$')
    if fields(F .. id, 'version')[1] ~= version or (redis.call('HGET', S .. 'triggers', id) or '') == text then return end
    wrong('m', S .. 'triggers', text == '' and 'has triggers of flow ' .. id .. ', which has none' or 'has not the triggers of flow ' .. id,
      text == '' and { 'HDEL', S .. 'triggers', id } or { 'HSET', S .. 'triggers', id, text })
  end
end

local at = 8
for _ = 1, tonumber(ARGV[7]) do
  if string.sub(ARGV[at], 1, 1) == '<' then
    look_again(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  elseif ARGV[at + 1] ~= '' or ARGV[at + 2] ~= '#' then
    look_at_entry(ARGV[at], ARGV[at + 1])
  end
  at = at + 3
end
for n = at, #ARGV do
  local flow, number = string.match(ARGV[n], '^flow:([^:]+):cycle:(%d+)$')
  local id = string.match(ARGV[n], '^node_tasks:(.*)$')
  if flow then look_at_cycle(flow, number) elseif id then look_at_node_task(id) else look_at_flow(string.sub(ARGV[n], 6)) end
end
return finish(ARGV[6])

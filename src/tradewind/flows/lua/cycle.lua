-- Shared by all scripts that move a cycle; goes after tasks/shared and tasks/cancel.
-- Keys built: flow:{f}, flow:{f}:running, flow:{f}:plan:{version}, flow:{f}:cycle:{n} and its :nodes, :done,
-- :in:{node}, :out, :unsent, :sent, :component:{c}:stop; node_tasks:{id}, trading_flow:node:{id}, node_tasks_list, worker_tasks:{w},
-- flows:deadlines, flows:wake, flows:ended, metrics:cycles, flow:outbox, task:{id} and what tasks/shared names.
-- A node's plan (msgpack): t type, k component, i inputs that are counted, r trigger rule, o out edges {handle, target, target
-- handle, 1 if optional there}, p priority, m attempts, u timeout ms, l labels, x handles that take a signal
-- from outside but are not waited for, c config as JSON, q request line's middle.
local DAY, WEEK = '86400', '604800'
local F = P .. 'flow:'
local iso_of = {}
local function iso(ms)
  if iso_of[ms] then return iso_of[ms] end
  local days = math.floor(ms / 86400000)
  local rest, z = ms - days * 86400000, days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local text = string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', yoe + era * 400 + (month <= 2 and 1 or 0), month,
    doy - math.floor((153 * mp + 2) / 5) + 1, math.floor(rest / 3600000), math.floor(rest / 60000) % 60,
    math.floor(rest / 1000) % 60, rest % 1000)
  iso_of[ms] = text
  return text
end
local AT, SECONDS = iso(now), string.format('%.3f', now / 1000)
local quote = cjson.encode

-- Records for SQL and the live feed: one stream entry for a script, more when it grows large.
local records, record_bytes, OUTBOX_MAX = {}, 0, '100000'
local function flush_records()
  if #records == 0 then return end
  redis.call('XADD', P .. 'flow:outbox', 'MAXLEN', '~', OUTBOX_MAX, '*', 'd', '[' .. table.concat(records, ',') .. ']')
  records, record_bytes = {}, 0
end
local function record(text)
  records[#records + 1] = text
  record_bytes = record_bytes + #text
  if record_bytes > 200000 then flush_records() end
end
local function log_line(c, level, message)
  record('{"k":"log","flow":"' .. c.flow .. '","cycle":' .. c.n .. ',"node":null,"level":"' .. level
    .. '","source":"scheduler","message":' .. quote(message) .. ',"meta":null,"at":' .. NOW .. '}')
end

local EVENTS, watched = ARGV[3]:gsub('task:events$', 'flow:events'), nil
local function tell(event, c, node, status)
  if watched == nil then watched = is_heard(EVENTS) end
  if watched then
    redis.call('PUBLISH', EVENTS, '{"event":"' .. event .. '","flow_id":"' .. c.flow .. '","cycle":' .. c.n .. ',"node_id":'
      .. (node and '"' .. node .. '"' or 'null') .. ',"status":"' .. status .. '","timestamp":' .. SEC .. '}')
  end
end

-- Cycles and plans as read, once a script.
local cycles = {}
local COUNTED = { completed = 1, failed = 2, skipped = 3, terminated = 4 }
local function cycle_of(flow, n)
  local name = flow .. ':' .. n
  local c = cycles[name]
  if c == nil then
    local key = F .. flow .. ':cycle:' .. n
    local f = fields(key, 'status', 'version', 'start_time', 'open', 'completed', 'failed', 'skipped',
      'terminated', 'stop', 'parent', 'amqp', 'start_ms', 'trigger', 'slot_ms', 'total', 'cause', 'on_failure')
    c = false
    if f[1] and f[2] and numeric(f[4]) then -- else there is none, or a hand has spoilt it: it ends with its deadline
      c = { flow = flow, n = n, name = name, key = key, status = f[1], version = f[2], began = f[3] or AT, open = tonumber(f[4]),
        counts = { tonumber(numeric(f[5]) or '0'), tonumber(numeric(f[6]) or '0'), tonumber(numeric(f[7]) or '0'),
          tonumber(numeric(f[8]) or '0') }, stop = f[9], parent = f[10], amqp = f[11] == '1', start = numeric(f[12]) or NOW,
        trigger = f[13] or '', slot = numeric(f[14]) or '0', total = numeric(f[15]) or '0', cause = f[16],
        on_failure = f[17], plan = {}, plan_key = F .. flow .. ':plan:' .. f[2], todo = {}, came = {}, stops = {}, dirty = false }
    end
    cycles[name] = c
  end
  return c
end
local function node_of(c, id)
  local node = c.plan[id]
  if node == nil then
    local packed = redis.call('HGET', c.plan_key, id)
    node = packed and cmsgpack.unpack(packed) or false
    c.plan[id] = node
  end
  return node
end
-- Read the plans of many nodes at once.
local function foresee(c, ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if c.plan[id] == nil then missing[#missing + 1] = id end
  end
  for from = 1, #missing, 500 do
    local last = math.min(from + 499, #missing)
    for i, packed in ipairs(redis.call('HMGET', c.plan_key, unpack(missing, from, last))) do
      c.plan[missing[from + i - 1]] = packed and cmsgpack.unpack(packed) or false
    end
  end
end
local function task_of(c, id) return c.flow .. '_' .. c.n .. '_' .. id end

-- Both of the seed's records of a node, one writer.
local function show(c, id, node, status, worker, message, progress)
  local tid = task_of(c, id)
  local key = P .. 'trading_flow:node:' .. tid
  redis.call('HSET', key, 'status', status, 'updated_at', SECONDS, 'error_message',
    (status == 'failed' or status == 'terminated' or status == 'skipped') and message or '')
  if status == 'pending' or status == 'skipped' or now - tonumber(c.start) > 3600000 then redis.call('EXPIRE', key, DAY) end
  redis.call('SET', P .. 'node_tasks:' .. tid, '{"node_task_id":"' .. tid .. '","flow_id":"' .. c.flow .. '","cycle":' .. c.n
    .. ',"node_id":"' .. id .. '","node_type":"' .. node.t .. '","worker_id":"' .. worker .. '","status":"' .. status
    .. '","registered_at":"' .. c.began .. '","updated_at":"' .. AT .. '","message":' .. quote(message) .. ',"progress":'
    .. progress .. ',"config":' .. node.c .. '}', 'EX', DAY)
end

-- A signal or a tombstone comes over an edge; the same edge counts once. False when it had come before.
local function arrive(c, target, edge, value, optional)
  if redis.call('HSETNX', c.key .. ':in:' .. target, edge, value) == 0 then return false end
  local came = c.came[target]
  if not came then
    came = { target = target, n = 0, failed = 0, skipped = 0, absent = 0 }
    c.came[target] = came
    c.came[#c.came + 1] = came
  end
  came.n = came.n + 1
  if string.byte(value) == 33 then -- '!'
    local what = optional == 1 and 'absent' or (value == '!skipped' and 'skipped' or 'failed')
    came[what] = came[what] + 1
  end
  return true
end

-- Count what arrived in this script, once per node; those whose last input it was are to be decided, and those that
-- cannot run any more, whatever else comes.
local function count_arrivals(c)
  local all = c.came
  c.came = {}
  for _, came in ipairs(all) do
    local key, node = c.key .. ':in:' .. came.target, node_of(c, came.target)
    if node.i > 1 or c.amqp then -- a held cycle is looked at again when it is let go
      local n = redis.call('HINCRBY', key, 'n', came.n)
      for _, what in ipairs({ 'failed', 'skipped', 'absent' }) do
        if came[what] > 0 then came[what] = redis.call('HINCRBY', key, what, came[what])
        elseif n > came.n then came[what] = tonumber(redis.call('HGET', key, what) or '0') end
      end
      if n == came.n then redis.call('EXPIRE', key, WEEK) end
      came.n = n
    else
      redis.call('EXPIRE', key, WEEK)
    end
    if came.n == node.i or (came.failed > 0 and (node.r == 'all_success' or node.r == 'none_failed')) then
      c.todo[#c.todo + 1] = came
    end
  end
end

-- Signals that left a node, for the record: each output with its targets.
local function record_signals(c, node, outputs)
  for handle, body in pairs(outputs) do
    local to = {}
    for _, e in ipairs(node.o) do
      if e[1] == handle then to[#to + 1] = '["' .. e[2] .. '","' .. e[3] .. '"]' end
    end
    record('{"k":"signal","flow":"' .. c.flow .. '","cycle":' .. c.n .. ',"sig":' .. body .. ',"to":[' .. table.concat(to, ',') .. ']}')
  end
end

-- Why a node was cancelled: what its terminate flag says (the protocol's JSON, or any text), else why its cycle is stopped, else as told.
local function why_cancelled(c, id, message)
  local flag = redis.pcall('GET', P .. 'trading_flow:node:' .. task_of(c, id) .. ':terminate')
  if type(flag) == 'string' then
    local is_json, value = pcall(cjson.decode, flag)
    local reason = flag
    if is_json and type(value) == 'table' then reason = value.reason elseif type(value) == 'string' and is_json then reason = value end
    if type(reason) == 'string' and reason ~= '' then return string.sub(reason, 1, 500) end
  end
  return c.stop and redis.call('HGET', c.key, 'reason') or message
end

-- The field of …:unsent and …:sent for one edge: the routing key before any shortening.
local function plain_key(c, component, source, handle, target, target_handle)
  return 'flow.' .. c.flow .. '.component.' .. component .. '.cycle.' .. c.n .. '.from.' .. source .. '.handle.' .. handle
    .. '.to.' .. target .. '.handle.' .. target_handle
end

-- Cycles that a node started and that still run, when it ends or is to be tried anew: settle_cycles stops them.
local orphans = {}
local function leave_children(c, id, why)
  local key = c.key .. ':in:' .. id
  local kids = redis.call('HGET', key, 'kids')
  if not kids or tonumber(kids) <= 0 then return end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local flow, n = string.match(field, '^open (%S+) (%d+)$')
    if flow then orphans[#orphans + 1] = { flow, n, why } end
  end
end

local unsent_since = NOW -- 0: nobody but the leader will send them
local tombstones_travel = false -- true: over the broker, behind what a foreign worker has published itself
-- A node ends for good: its records, its counters, and what it sends. kind: '!failed' or '!skipped', what goes over edges
-- without a value. outputs: handle → signal as JSON. is_silent: nothing is sent, the caller ends the others itself.
local function end_node(c, id, status, worker, start, message, outputs, kind, is_silent)
  local line = status .. ' ' .. start .. ' ' .. NOW .. ' ' .. worker .. ' ' .. message
  if redis.call('HSETNX', c.key .. ':done', id, line) == 0 then return false end
  local node = node_of(c, id)
  show(c, id, node, status, worker, message, status == 'completed' and '100' or '0')
  c.open, c.dirty = c.open - 1, true
  c.counts[COUNTED[status]] = c.counts[COUNTED[status]] + 1
  tell('node_' .. status, c, id, status)
  leave_children(c, id, 'node ' .. id .. ' of cycle ' .. c.n .. ' of ' .. c.flow .. ' has ended: ' .. status)
  if status == 'failed' then
    if not c.cause then c.cause = id .. ': ' .. message end
    record('{"k":"log","flow":"' .. c.flow .. '","cycle":' .. c.n .. ',"node":"' .. id
      .. '","level":"ERROR","source":"node","message":' .. quote('Node ' .. id .. ' failed: ' .. message) .. ',"meta":null,"at":' .. NOW .. '}')
  end
  if outputs then
    record_signals(c, node, outputs)
    if c.parent then -- for the node that waits for this cycle
      local parts = {}
      for handle, body in pairs(outputs) do parts[#parts + 1] = quote(handle) .. ':' .. body end
      redis.call('HSET', c.key .. ':out', id, '{' .. table.concat(parts, ',') .. '}')
      redis.call('EXPIRE', c.key .. ':out', WEEK)
    end
  end
  if not is_silent then
    if #node.o > 1 then
      local targets = {}
      for i, e in ipairs(node.o) do targets[i] = e[2] end
      foresee(c, targets)
    end
    for _, e in ipairs(node.o) do
      local body = outputs and outputs[e[1]]
      if c.amqp and (body or tombstones_travel) then -- whoever takes over sends it again until it is confirmed
        redis.call('HSET', c.key .. ':unsent', plain_key(c, node.k, id, e[1], e[2], e[3]), body or kind)
        redis.call('ZADD', P .. 'flows:unsent', unsent_since == '0' and 'LT' or 'NX', unsent_since, c.name)
      else
        arrive(c, e[2], id .. ':' .. e[1] .. '->' .. e[3], body or kind, e[4])
      end
    end
  end
  return true
end

-- Where a ready node's task goes: to the worker that runs this script while it has room (`me`: id, room), to an idle one,
-- or to the queue. Taken tasks are collected in `given` as task_take answers them.
local me, given, room, queued, later = nil, { 0 }, 0, { high = {}, normal = {} }, false
local serves, gated = {}, nil
local function is_gated()
  if gated == nil then gated = redis.call('EXISTS', P .. 'queue:paused', P .. 'ratelimit:config') > 0 end
  return gated
end
local function serve(kind)
  if serves[kind] == nil then serves[kind] = redis.call('SISMEMBER', P .. 'worker:type:' .. kind, me) == 1 end
  return serves[kind]
end
local has_backlog
local function idle(kind)
  if has_backlog == nil then
    has_backlog = redis.call('LLEN', P .. 'queue:high') + redis.call('LLEN', P .. 'queue:normal') > 0
      or redis.call('EXISTS', P .. 'queue:parked') == 1
  end
  if has_backlog then return nil end
  local best, least
  for _, w in ipairs(redis.call('SRANDMEMBER', P .. 'worker:type:' .. kind, 5)) do
    local lease = redis.call('ZSCORE', P .. 'workers', w)
    if lease and tonumber(lease) > now then
      local f = fields(P .. 'worker:' .. w, 'capacity', 'status')
      local load = redis.call('LLEN', P .. 'worker:' .. w .. ':queue') + redis.call('ZCARD', P .. 'worker:' .. w .. ':inflight')
      if numeric(f[1]) and f[2] == 'active' and load < tonumber(f[1]) and (not least or load < least) then best, least = w, load end
    end
  end
  return best
end
local is_listed = false
local function start_task(c, id, node)
  local tid = task_of(c, id)
  local key, body = T .. tid, '{"kwargs":{"flow_id":"' .. c.flow .. '","cycle":' .. c.n .. ',"node_id":"' .. id
    .. '","component_id":' .. node.k .. '}' .. node.q .. '}'
  redis.call('SET', key .. ':body', body)
  count('submitted', 1)
  announce('created', tid, node.t)
  local is_free = not node.l and not is_gated()
  if me and room > 0 and is_free and serve(node.t) then
    local tok = int(redis.call('INCR', P .. 'task:token'))
    redis.call('HSET', key, 'type', node.t, 'status', 'PROCESSING', 'pri', node.p, 'at', NOW, 'max', node.m, 'tmo', node.u,
      'hook', 'flows', 'x', '1', 'n', '1', 'tok', tok, 'start', NOW, 'worker', me)
    redis.call('ZADD', P .. 'worker:' .. me .. ':inflight', tok, tid)
    redis.call('SADD', P .. 'task:marked', tid)
    if redis.call('SADD', P .. 'worker_tasks:' .. me, tid) == 1 and not is_listed then
      redis.call('EXPIRE', P .. 'worker_tasks:' .. me, WEEK) -- of a lost worker nobody else takes the members out
      is_listed = true
    end
    show(c, id, node, 'running', me, 'Executing node', '0')
    announce('started', tid, node.t)
    tell('node_running', c, id, 'running')
    room = room - 1
    local at = #given
    given[at + 1], given[at + 2], given[at + 3] = tid, node.t, '1'
    given[at + 4], given[at + 5], given[at + 6] = tok, body, int(node.u) .. ':0::flows'
    given[at + 7], given[at + 8] = c.version, redis.call('HGETALL', c.key .. ':in:' .. id)
    return
  end
  local worker = not me and is_free and idle(node.t)
  redis.call('HSET', key, 'type', node.t, 'status', worker and 'ASSIGNED' or 'QUEUED', 'pri', node.p, 'at', NOW, 'max', node.m,
    'tmo', node.u, 'hook', 'flows', 'x', '1')
  if node.l then redis.call('HSET', key, 'lab', node.l) end
  if worker then
    redis.call('HSET', key, 'worker', worker)
    redis.call('LPUSH', P .. 'worker:' .. worker .. ':queue', tid)
    announce('assigned', tid, node.t)
  else
    table.insert(queued[node.p], tid)
  end
end

-- All inputs of a node have come: it runs, or it is skipped, by its trigger rule.
local function decide(c, came)
  local id, failed, skipped = came.target, came.failed, came.skipped
  local node, values = node_of(c, id), came.n - failed - skipped - came.absent
  if c.stops[node.k] == nil then c.stops[node.k] = redis.call('EXISTS', c.key .. ':component:' .. node.k .. ':stop') == 1 end
  if c.stops[node.k] then
    end_node(c, id, 'skipped', '', '0', 'component_stopped', nil, '!failed')
    return
  end
  local runs = node.r == 'all_done' or (node.r == 'any_success' and (values > 0 or node.i == 0))
    or (node.r == 'none_failed' and failed == 0 and (values > 0 or skipped == 0))
    or (node.r == 'all_success' and failed == 0 and skipped == 0)
  if runs then
    start_task(c, id, node)
  elseif failed > 0 then
    end_node(c, id, 'skipped', '', '0', 'upstream_failed: ' .. (c.cause or 'an input failed'), nil, '!failed')
  else
    end_node(c, id, 'skipped', '', '0', 'upstream_skipped: no value came over an input', nil, '!skipped')
  end
end

-- A suspended node is run again now.
local function run_soon(tid)
  if redis.call('ZSCORE', P .. 'queue:delayed', tid) then
    redis.call('ZADD', P .. 'queue:delayed', SECONDS, tid)
    later = true
  end
end

-- A child cycle has ended: its parent node is run again once all of its children have.
local function tell_parent(c, status)
  local flow, n, node = string.match(c.parent, '^([^:]+):(%d+):(.+)$')
  local key = F .. flow .. ':cycle:' .. n .. ':in:' .. node
  if redis.call('HSETNX', key, 'kid ' .. c.flow .. ' ' .. c.n, status) == 0 then return end
  redis.call('HDEL', key, 'open ' .. c.flow .. ' ' .. c.n)
  if redis.call('HINCRBY', key, 'kids', -1) > 0 then return end
  local tid = flow .. '_' .. n .. '_' .. node
  run_soon(tid)
end

local function end_cycle(c)
  local failed = c.counts[2] > 0
  local status = c.stop or (failed and 'failed' or 'completed')
  local flow = F .. c.flow
  redis.call('HSET', c.key, 'status', status, 'end_time', AT)
  redis.call('EXPIRE', c.key, WEEK)
  redis.call('EXPIRE', c.key .. ':done', WEEK)
  redis.call('SREM', flow .. ':running', c.n)
  redis.call('HINCRBY', P .. 'metrics:cycles', status, 1)
  redis.call('HINCRBY', P .. 'metrics:cycles', 'ms', math.max(0, now - tonumber(c.start)))
  redis.call('ZREM', P .. 'flows:deadlines', c.name)
  log_line(c, failed and 'ERROR' or 'INFO', 'Cycle ' .. c.n .. ' ' .. status)
  local nodes, lines = {}, redis.call('HGETALL', c.key .. ':done')
  for i = 1, #lines, 2 do
    local state, start, finish, _, message = string.match(lines[i + 1], '^(%S+) (%S+) (%S+) (%S*) (.*)$')
    nodes[#nodes + 1] = '"' .. lines[i] .. '":["' .. state .. '",' .. start .. ',' .. finish .. ','
      .. (message == '' and '""' or quote(message)) .. ']'
  end
  local stopped_by = redis.call('HGET', c.key, 'stopped_by') or ''
  record('{"k":"cycle","flow":"' .. c.flow .. '","cycle":' .. c.n .. ',"status":"' .. status .. '","trigger":"' .. c.trigger
    .. '","slot":' .. c.slot .. ',"start":' .. c.start .. ',"end":' .. NOW .. ',"counts":{"total":' .. c.total .. ',"completed":'
    .. c.counts[1] .. ',"failed":' .. c.counts[2] .. ',"skipped":' .. c.counts[3] .. ',"terminated":' .. c.counts[4]
    .. '},"stopped_by":' .. quote(stopped_by) .. ',"error":' .. quote(c.cause or '') .. ',"nodes":{' .. table.concat(nodes, ',') .. '}}')
  local f = redis.call('HMGET', flow, 'status', 'once', 'failures', 'max_failures', 'buffered_ms')
  local next_status
  if f[1] == 'draining' or f[1] == 'stopping' then
    if redis.call('SCARD', flow .. ':running') == 0 then next_status = 'stopped' end
  elseif f[2] == '1' and f[1] ~= 'paused' and f[1] ~= 'deleting' and c.trigger ~= 'partial' then
    next_status = c.stop and (c.stop == 'timeout' and 'failed' or 'stopped') or status
  elseif failed or c.stop == 'timeout' then
    local failures = redis.call('HINCRBY', flow, 'failures', 1)
    local most = tonumber(f[4] or '0')
    if f[1] == 'running' and most > 0 and failures >= most then next_status = 'failed' end
  elseif f[3] and f[3] ~= '0' then
    redis.call('HSET', flow, 'failures', '0')
  end
  if next_status then
    redis.call('HSET', flow, 'status', next_status, 'next_execution', '0')
    redis.call('HDEL', flow, 'buffered_ms')
    redis.call('ZREM', P .. 'flows:due', c.flow)
  end
  if c.parent then tell_parent(c, status) end
  tell('cycle_' .. status, c, nil, status)
  if f[5] then redis.call('RPUSH', P .. 'flows:ended', c.flow) end -- a slot waits for this end
  wake_on(P .. 'flows:wake')
  c.status = status
end

-- Stop what is left of some nodes (ids): waiting and queued ones end with that status now, running ones are asked to.
local function halt(c, ids, status, message)
  for _, id in ipairs(ids) do
    if redis.call('HEXISTS', c.key .. ':done', id) == 0 then
      local verdict = cancel(task_of(c, id), 3600000, '300000', true)
      if verdict ~= 2 then end_node(c, id, status, '', '0', message, nil, '!failed', true) end
    end
  end
end
local function nodes_of(c, component)
  local packed = redis.call('HGET', c.plan_key, ':' .. component)
  return packed and cmsgpack.unpack(packed) or {}
end

-- Stop a running cycle; what: stopped or timeout.
local function stop_cycle(c, what, reason)
  c.stop = what
  redis.call('HSET', c.key, 'stop', what, 'reason', reason)
  redis.call('ZREM', P .. 'flows:deadlines', c.name)
  log_line(c, 'WARNING', 'Cycle ' .. c.n .. (what == 'timeout' and ' ran past its deadline' or ' is being stopped') .. ': ' .. reason)
  local nodes = nodes_of(c, 'all')
  halt(c, nodes, 'terminated', reason)
  if #nodes == 0 then c.open, c.dirty = 0, true end -- its plan is gone: nobody else would end it
end

-- Once, at the end of a script: decide what became ready, end what is done, write the counters, place the tasks.
local function settle_cycles()
  local again = true
  while again do
    again = false
    for _, c in pairs(cycles) do
      if c then
        count_arrivals(c)
        while #c.todo > 0 do
          local todo, ids = c.todo, {}
          c.todo = {}
          for from = 1, #todo, 500 do
            local last = math.min(from + 499, #todo)
            for i = from, last do ids[i] = todo[i].target end
            local done = redis.call('HMGET', c.key .. ':done', unpack(ids, from, last))
            for i = from, last do
              if not done[i - from + 1] then decide(c, todo[i]) end
            end
          end
          count_arrivals(c)
        end
        if c.on_failure and c.counts[2] > 0 and not c.halted then
          c.halted, again = true, true
          local failed = redis.call('HGETALL', c.key .. ':done')
          for i = 1, #failed, 2 do
            if string.sub(failed[i + 1], 1, 7) == 'failed ' then
              local k = c.on_failure == 'stop_component' and node_of(c, failed[i]).k or 'all'
              halt(c, nodes_of(c, k), 'skipped', 'stopped: ' .. (c.cause or 'a node failed'))
            end
          end
        end
      end
    end
    while #orphans > 0 do
      local one = table.remove(orphans)
      local child = cycle_of(one[1], one[2])
      if child and child.status == 'running' and not child.stop then
        stop_cycle(child, 'stopped', one[3])
        again = true
      end
    end
  end
  for _, c in pairs(cycles) do
    if c and c.dirty then
      redis.call('HSET', c.key, 'open', c.open, 'completed', c.counts[1], 'failed', c.counts[2], 'skipped', c.counts[3],
        'terminated', c.counts[4])
      if c.cause then redis.call('HSET', c.key, 'cause', c.cause) end
      if c.open == 0 and c.status == 'running' then end_cycle(c) end
    end
  end
  push('LPUSH', P .. 'queue:high', queued.high)
  push('LPUSH', P .. 'queue:normal', queued.normal)
  given[1] = (#given - 1) / 8
  flush_records()
  settle()
  if later or #queued.high + #queued.normal > 0 then wake() end
end

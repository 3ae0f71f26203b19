#!lua
-- Compare the indexes of tasks and workers with the records, and bring them back to what these say.
-- KEYS 1 queue:normal
-- ARGV 6 ms that a worker's record lives 7 mode 8 number of entries of indexes, per entry the key without the prefix, the member or
--   field, its value; then names of records. Entries with a name in angle brackets are answers to questions of an earlier call:
--   <queued> a task that stood in no queue, <ended> one that stood not in the outbox.
-- Keys built here: those that shared.lua names, queue:…, worker:{id}, worker:{id}:queue, worker:{id}:inflight, worker:type:{type},
--   worker:types, workers, schedule:config, schedule:due. Returns what redis/repair.lua says.
-- include: shared
-- include: redis/repair
local W, Q = P .. 'worker:', P .. 'queue:'
-- How far from either end of a long list an id is looked for: the caller has looked through all of it.
local NEAR = 1000
local function is_gone(worker)
  return not redis.call('ZSCORE', P .. 'workers', worker) and redis.call('EXISTS', W .. worker) == 0
end
local WAKE = function() wake() end

local function stands_in(list, id)
  return redis.call('LPOS', list, id, 'MAXLEN', NEAR) or redis.call('LPOS', list, id, 'RANK', -1, 'MAXLEN', NEAR)
end
local function requeue(id, pri, c)
  return { 'RPUSH', Q .. pri, id }, { 'HSET', T .. id, 'status', 'QUEUED', 'tok', '0' }, { 'HDEL', T .. id, 'worker', 'start' }, WAKE,
    function() if c then uncache(id) end end
end

-- Records.
local function look_at_task(id)
  local f = fields(T .. id, 'status', 'type', 'pri', 'worker', 'tok', 'due', 'ddl', 'lock', 'wait', 'c', 'hook')
  local status, pri, worker = f[1], f[3], f[4]
  if not (status and f[2]) then
    if redis.call('EXISTS', T .. id) == 1 then wrong('n', T .. id, 'is no task: it has no status or no type') end
    return
  end
  if TERMINAL[status] then
    if IS_ARCHIVED and redis.call('PTTL', T .. id) == -1 then wrong('?', 'ended', id) end
    return
  end
  if pri ~= 'high' and pri ~= 'normal' then
    wrong('n', T .. id, 'has a pri that is neither high nor normal: it counts as normal')
    pri = 'normal'
  end
  if redis.call('EXISTS', T .. id .. ':body') == 0 then
    wrong('n', T .. id .. ':body', 'is gone: the task would run without its arguments; cancel it')
  end
  if status == 'QUEUED' then
    wrong('?', 'queued', id)
  elseif status == 'PENDING' or status == 'RETRYING' then
    if not redis.call('ZSCORE', Q .. 'delayed', id) then
      wrong('m', Q .. 'delayed', 'misses task ' .. id,
        { 'ZADD', Q .. 'delayed', string.format('%.3f', (tonumber(f[6] or '') or now) / 1000), id }, WAKE)
    end
  elseif status == 'ASSIGNED' and worker then
    if not redis.call('LPOS', W .. worker .. ':queue', id) then
      wrong('m', W .. worker .. ':queue', 'misses task ' .. id .. ', which goes back to its queue', requeue(id, pri, f[10]))
    elseif is_gone(worker) then
      wrong('m', P .. 'workers', 'misses ' .. worker .. ', which is gone and has tasks', { 'ZADD', P .. 'workers', '0', worker })
    end
  elseif status == 'PROCESSING' and worker then
    local key = W .. worker .. ':inflight'
    if tonumber(redis.call('ZSCORE', key, id) or '') ~= (tonumber(f[5] or '') or 0) then
      wrong('m', key, 'misses task ' .. id, { 'ZADD', key, f[5] or '0', id })
    end
    if is_gone(worker) then -- the leader takes its tasks back
      wrong('m', P .. 'workers', 'misses ' .. worker .. ', which is gone and has tasks', { 'ZADD', P .. 'workers', '0', worker })
    end
    if (f[8] or f[9] or f[10] or f[11]) and redis.call('SISMEMBER', T .. 'marked', id) == 0 then
      wrong('m', T .. 'marked', 'misses task ' .. id, { 'SADD', T .. 'marked', id })
    end
  else
    wrong('n', T .. id, 'has the status ' .. status .. (worker and '' or ' and no worker') .. ', with which no script goes on')
  end
  local ddl = tonumber(f[7] or '')
  if ddl and ddl > now and not redis.call('ZSCORE', T .. 'deadlines', id) then
    wrong('m', T .. 'deadlines', 'misses task ' .. id, { 'ZADD', T .. 'deadlines', f[7], id })
  end
end
local function look_at_worker(id)
  local f = fields(W .. id, 'capacity', 'supported_types', 'gen', 'pull')
  if not tonumber(f[1] or '') then
    if redis.call('EXISTS', W .. id) == 1 then wrong('n', W .. id, 'is no worker: its capacity is no number; it gets no task') end
    return
  end
  local is_list, types = pcall(cjson.decode, f[2] or '[]')
  for _, kind in ipairs(is_list and type(types) == 'table' and types or {}) do
    if type(kind) == 'string' then
      if redis.call('SISMEMBER', W .. 'type:' .. kind, id) == 0 then
        wrong('m', W .. 'type:' .. kind, 'misses ' .. id, { 'SADD', W .. 'type:' .. kind, id }, { 'SADD', W .. 'types', kind }, WAKE)
      end
    end
  end
  local left = redis.call('PTTL', W .. id)
  if f[3] and f[4] == '1' and left > 0 and not redis.call('ZSCORE', P .. 'workers', id) then
    wrong('m', P .. 'workers', 'misses ' .. id, { 'ZADD', P .. 'workers', int(now + left), id })
  end
end

-- Entries of indexes.
local function look_at_entry(name, member, value)
  local key = P .. name
  local itself = member == '' and value == '#'
  local place = string.match(name, '^queue:parked:(.+)$')
  if place or name == 'queue:high' or name == 'queue:normal' then
    if itself then
      if place and redis.call('SISMEMBER', Q .. 'parked', place) == 0 and string.match(place, '^%a+:') and redis.call('LLEN', key) > 0 then
        wrong('m', Q .. 'parked', 'misses ' .. place, { 'SADD', Q .. 'parked', place }, WAKE)
      end
    elseif redis.call('EXISTS', T .. member) == 0 then
      wrong('m', key, 'names task ' .. member .. ' which has no record', { 'LREM', key, 0, member })
    end
    return
  end
  local kind = string.match(name, '^worker:type:(.+)$')
  local whose, what = string.match(name, '^worker:([^:]+):(%a+)$')
  if whose and not kind then
    if itself then
      if is_gone(whose) and redis.call('EXISTS', key) == 1 then
        wrong('m', P .. 'workers', 'misses ' .. whose .. ', which is gone and has tasks', { 'ZADD', P .. 'workers', '0', whose })
      end
      return
    end
    local f = fields(T .. member, 'status', 'worker')
    local says = f[1] and 'has task ' .. member .. ' which does not belong there' or 'names task ' .. member .. ' which has no record'
    if what == 'queue' and not (f[1] == 'ASSIGNED' and f[2] == whose) then
      wrong('m', key, says, { 'LREM', key, 0, member }, WAKE)
    elseif what == 'inflight' and not (f[1] == 'PROCESSING' and f[2] == whose) then
      wrong('m', key, says, { 'ZREM', key, member }, WAKE)
    end
    return
  end
  if kind then
    if itself then
      if redis.call('SISMEMBER', W .. 'types', kind) == 0 and redis.call('EXISTS', key) == 1 then
        wrong('m', W .. 'types', 'misses ' .. kind, { 'SADD', W .. 'types', kind })
      end
    elseif is_gone(member) then
      wrong('m', key, 'names worker ' .. member .. ' which has no record', { 'SREM', key, member })
    end
    return
  end
  if name == 'task:outbox:count' or name == 'task:outbox' then
    local many = redis.call('XLEN', T .. 'outbox')
    if many > NEAR then return end
    local count, held = 0, redis.call('GET', T .. 'outbox:count')
    for _, entry in ipairs(redis.call('XRANGE', T .. 'outbox', '-', '+')) do
      local _, words = string.gsub(entry[2][1] == 'ids' and entry[2][2] or '', '%S+', '')
      count = count + words
    end
    if tonumber(held or '0') ~= count then
      wrong('m', T .. 'outbox:count', 'is ' .. (held or 'gone') .. ' and should be ' .. count, { 'SET', T .. 'outbox:count', int(count) })
    end
    return
  end
  if itself then return end
  if name == 'queue:parked' then
    if not (string.match(member, '^high:.') or string.match(member, '^normal:.')) then
      wrong('m', key, 'has ' .. member .. ' which is no priority:type', { 'SREM', key, member })
    elseif redis.call('LLEN', Q .. 'parked:' .. member) == 0 then
      wrong('m', key, 'names ' .. member .. ' where no task is parked', { 'SREM', key, member })
    end
  elseif name == 'queue:delayed' then
    local status = fields(T .. member, 'status')[1]
    if status ~= 'PENDING' and status ~= 'RETRYING' then
      local says = status and 'has task ' .. member .. ' which is ' .. status or 'names task ' .. member .. ' which has no record'
      wrong('m', key, says, { 'ZREM', key, member })
    end
  elseif name == 'task:marked' then
    local status = fields(T .. member, 'status')[1]
    if not status or TERMINAL[status] then
      local says = status and 'has task ' .. member .. ' which has ended' or 'names task ' .. member .. ' which has no record'
      wrong('m', key, says, { 'SREM', key, member })
    end
  elseif name == 'task:deadlines' then
    if redis.call('EXISTS', T .. member) == 0 then -- of one that has ended it leaves when its time has passed
      local far = (tonumber(value) or 0) > now + 604800000
      wrong(far and 'm' or 't', key, 'names task ' .. member .. ' which has no record', { 'ZREM', key, member })
    end
  elseif name == 'worker:types' then
    if redis.call('EXISTS', W .. 'type:' .. member) == 0 then
      wrong('m', key, 'names type ' .. member .. ' which no worker supports', { 'SREM', key, member })
    end
  elseif name == 'workers' then
    local lease = tonumber(redis.call('ZSCORE', key, member) or '')
    if lease and lease > now and redis.call('EXISTS', W .. member) == 0 then
      local holds = redis.call('EXISTS', W .. member .. ':queue', W .. member .. ':inflight') > 0 -- the leader takes that back
      wrong('m', key, 'names worker ' .. member .. ' which has no record',
        holds and { 'ZADD', key, '0', member } or { 'ZREM', key, member }, WAKE)
    end
  elseif name == 'schedule:due' then
    if redis.call('HEXISTS', P .. 'schedule:config', member) == 0 then
      wrong('m', key, 'names schedule ' .. member .. ' which has no definition', { 'ZREM', key, member })
    end
  elseif name == 'schedule:config' then
    if not redis.call('ZSCORE', P .. 'schedule:due', member) then wrong('?', 'schedule', member) end
  elseif name == 'ratelimit:config' then
    local most, window = string.match(value, '^(%d+):(%d+)$')
    if not most or tonumber(window) < 10 then
      wrong('n', key, 'has a limit of ' .. member .. ' that is no limit:window_ms; it counts as none. Set or remove it')
    end
  end
end

local function look_again(what, id, value)
  if what == '<queued>' then
    local f = fields(T .. id, 'status', 'type', 'pri', 'lab', 'c')
    if f[1] ~= 'QUEUED' or not f[2] then return end
    local list = Q .. priority_of(f[3])
    local parking = Q .. 'parked:' .. priority_of(f[3]) .. ':' .. f[2] .. (f[4] and '@' .. f[4] or '')
    if stands_in(list, id) or stands_in(parking, id) then return end
    wrong('m', list, 'misses task ' .. id, { 'RPUSH', list, id }, WAKE)
  elseif what == '<ended>' then
    if not TERMINAL[fields(T .. id, 'status')[1]] or redis.call('PTTL', T .. id) ~= -1 then return end
    wrong('m', T .. 'outbox', 'misses task ' .. id .. ', which has ended', { 'XADD', T .. 'outbox', '*', 'ids', id },
      { 'INCRBY', T .. 'outbox:count', 1 })
  elseif what == '<schedule>' then -- value: its definition as read, then its next slot
    local slot, text = string.match(value, '^(%d+) (.*)$')
    if redis.call('HGET', P .. 'schedule:config', id) ~= text or redis.call('ZSCORE', P .. 'schedule:due', id) then return end
    wrong('m', P .. 'schedule:due', 'misses schedule ' .. id, { 'ZADD', P .. 'schedule:due', slot, id }, WAKE)
  end
end

local at = 9
for _ = 1, tonumber(ARGV[8]) do
  if string.sub(ARGV[at], 1, 1) == '<' then
    look_again(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  else
    look_at_entry(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  end
  at = at + 3
end
for n = at, #ARGV do
  local id = string.match(ARGV[n], '^task:(.*)$')
  if id then look_at_task(id) else look_at_worker(string.sub(ARGV[n], 8)) end
end
return finish(ARGV[7])

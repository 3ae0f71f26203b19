#!lua
-- Accept tasks, all or none. An idle worker that supports the type gets a small submission directly.
-- KEYS 1 queue:high 2 queue:normal 3 queue:delayed 4 workers 5 queue:paused 6 ratelimit:config 7 queue:parked
-- ARGV 6 bound of waiting tasks, delayed and parked ones too (0 none) 7 bound of the outbox 8 direct ('1': may assign) 9 ms that idempotency lasts,
--   then per task: id, type, priority, request line, options ('' or msgpack map: delay_ms|eta_ms, tmo, ddl, lock, lab, max, idem, sha)
-- Also touches: worker:type:{type}, worker:{id}, worker:{id}:queue, worker:{id}:inflight, task:idem:{key}, task:deadlines.
-- Returns {1, status per task…} with 'QUEUED', 'PENDING', 'ASSIGNED' or '=id' of the task that has the idempotency key;
--   {-1, index, id} another request under that key; {-2, length} queue full; {-3, length} outbox full; {-4, index, id} id taken.
-- A repeat of the whole call (lost reply) finds its own ids with the same request and answers as before.
-- include: shared
local STRIDE, FROM = 5, 10
local n = (#ARGV - FROM + 1) / STRIDE
local high, normal = redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2])

-- Read and decide.
local names = {}
for i = 1, n do names[i] = T .. ARGV[FROM + (i - 1) * STRIDE] end
local taken = 0
for from = 1, n, 1000 do taken = taken + redis.call('EXISTS', unpack(names, from, math.min(from + 999, n))) end
local answer, options, fresh, new = { 1 }, {}, {}, 0
for i = 1, n do
  local at = FROM + (i - 1) * STRIDE
  local id, o = ARGV[at], ARGV[at + 4]
  if o ~= '' then o = cmsgpack.unpack(o) options[i] = o else o = nil end
  if o and o.idem then
    local held = redis.call('GET', P .. 'task:idem:' .. o.idem) or fresh[o.idem]
    if held then
      local sha, owner = string.match(held, '^(%S+) (.+)$')
      if sha ~= o.sha then return { -1, i, owner } end
      if owner ~= id or redis.call('EXISTS', names[i]) == 0 then answer[i + 1] = '=' .. owner end
    else
      fresh[o.idem] = o.sha .. ' ' .. id
    end
  end
  if not answer[i + 1] and taken > 0 and redis.call('EXISTS', names[i]) == 1 then
    local line = string.match(redis.call('GET', names[i] .. ':body') or '', '^[^\n]*')
    local f = redis.call('HMGET', names[i], 'type', 'status')
    if line ~= ARGV[at + 3] or f[1] ~= ARGV[at + 1] then return { -4, i, id } end
    answer[i + 1] = f[2]
  end
  if not answer[i + 1] then new = new + 1 end
end

-- Bounds, of what is new only: a repeat was accepted before.
local bound = tonumber(ARGV[6])
if bound > 0 and new > 0 then
  local waiting = high + normal + redis.call('ZCARD', KEYS[3])
  for _, place in ipairs(redis.call('SMEMBERS', KEYS[7])) do
    waiting = waiting + redis.call('LLEN', P .. 'queue:parked:' .. place)
  end
  if waiting + new > bound then return { -2, waiting } end
end
if IS_ARCHIVED and new > 0 then
  local waiting = tonumber(redis.call('GET', P .. 'task:outbox:count') or '0')
  if waiting >= tonumber(ARGV[7]) then return { -3, waiting } end
end

-- An idle worker for a task of this type, or nil.
local function idle(kind)
  local best, least
  for _, w in ipairs(redis.call('SRANDMEMBER', P .. 'worker:type:' .. kind, 5)) do
    local lease = redis.call('ZSCORE', KEYS[4], w)
    if lease and tonumber(lease) > now then
      local f = fields(P .. 'worker:' .. w, 'capacity', 'status')
      local load = load_of(w)
      if load and numeric(f[1]) and f[2] == 'active' and load < tonumber(f[1]) and (not least or load < least) then best, least = w, load end
    end
  end
  return best
end
local direct = ARGV[8] == '1' and n <= 16 and high + normal == 0
  and redis.call('EXISTS', KEYS[5], KEYS[7]) == 0

-- Write.
local queued, accepted, later = { high = {}, normal = {} }, 0, false
for i = 1, n do
  if not answer[i + 1] then
    local at = FROM + (i - 1) * STRIDE
    local id, kind, priority, o = ARGV[at], ARGV[at + 1], ARGV[at + 2], options[i]
    local key, status, due, worker = names[i], 'QUEUED', 0, nil
    if o then
      due = o.eta_ms or (o.delay_ms and now + o.delay_ms) or 0
      if due <= now then due = 0 end
      if due > 0 then status = 'PENDING' end
    end
    if direct and due == 0 and not (o and o.lab) and redis.call('HEXISTS', KEYS[6], kind) == 0 then
      worker = idle(kind)
      if worker then status = 'ASSIGNED' end
    end
    if worker then
      redis.call('HSET', key, 'type', kind, 'status', status, 'pri', priority, 'at', NOW, 'worker', worker)
    else
      redis.call('HSET', key, 'type', kind, 'status', status, 'pri', priority, 'at', NOW)
    end
    redis.call('SET', key .. ':body', ARGV[at + 3])
    if o then
      if o.ddl then redis.call('ZADD', T .. 'deadlines', o.ddl, id) end
      for _, field in ipairs({ 'tmo', 'ddl', 'lock', 'lab', 'max' }) do
        if o[field] then redis.call('HSET', key, field, o[field], 'x', '1') end
      end
      if o.idem then
        local last = math.max(due - now, 0) + tonumber(ARGV[9])
        redis.call('SET', P .. 'task:idem:' .. o.idem, o.sha .. ' ' .. id, 'PX', int(last))
      end
    end
    announce('created', id, kind)
    if worker then
      redis.call('LPUSH', P .. 'worker:' .. worker .. ':queue', id)
      announce('assigned', id, kind)
    elseif due > 0 then
      redis.call('HSET', key, 'due', int(due))
      redis.call('ZADD', KEYS[3], string.format('%.3f', due / 1000), id)
      later = true
    else
      local list = queued[priority]
      list[#list + 1] = id
    end
    answer[i + 1] = status
    accepted = accepted + 1
  end
end
push('LPUSH', KEYS[1], queued.high)
push('LPUSH', KEYS[2], queued.normal)
count('submitted', accepted)
settle()
if later or #queued.high + #queued.normal > 0 then wake() end
return answer

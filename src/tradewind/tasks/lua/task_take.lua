#!lua flags=allow-oom
-- A worker takes assigned tasks from its queue into its in-flight set, each with a new fencing token.
-- KEYS 1 worker:{id} 2 worker:{id}:queue 3 worker:{id}:inflight 4 task:token 5 queue:delayed
-- ARGV 6 worker id 7 generation 8 how many at most 9 default timeout ms 10 window ('' = unchanged) 11 ms that a lock lasts
--   12 most stalls
-- A task that may lose no further worker is on trial: a worker runs one of those at a time (its field `trial`), so that one
-- that kills its workers never takes another with it to the end.
-- Returns {-1} when the worker is not registered any more (evicted or replaced), else flat
--   {n, then per task: id, type, attempt, token, request line, '' or 'ms that it may take:stalls so far:lock name:hook'}.
-- include: shared
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[7] then return { -1 } end
local worker = ARGV[6]
if ARGV[10] ~= '' then redis.call('HSET', KEYS[1], 'window', ARGV[10]) end
local many = math.min(tonumber(ARGV[8]), 1000) -- Lua unpacks no more than some thousands
local ids = many > 0 and redis.call('LRANGE', KEYS[2], -many, -1) or {}
if #ids == 0 then return { 0 } end

local most_stalls, trial = tonumber(ARGV[12]), nil
local function may_be_tried(id)
  if trial == nil then
    trial = redis.call('HGET', KEYS[1], 'trial')
    if trial and not redis.call('ZSCORE', KEYS[3], trial) then trial = false end
  end
  if trial then return false end
  trial = id
  redis.call('HSET', KEYS[1], 'trial', id)
  return true
end

local flags, bodies = {}, {}
for i = 1, #ids do
  flags[i] = P .. 'task:cancel:' .. ids[i]
  bodies[i] = T .. ids[i] .. ':body'
end
local cancelled = redis.call('EXISTS', unpack(flags)) > 0
local requests = redis.call('MGET', unpack(bodies))

redis.call('LTRIM', KEYS[2], 0, -(#ids + 1))
local token = redis.call('INCRBY', KEYS[4], #ids) - #ids
local answer, scores, marked = { 0 }, {}, {}
for i = #ids, 1, -1 do
  local id = ids[i]
  local key = T .. id
  local f = fields(key, 'status', 'type', 'x')
  if f[1] == 'ASSIGNED' and f[2] then -- and to us: an id leaves this queue whenever its task leaves that state
    local more, kind = rare(id, f[3]), f[2]
    local lock = more.lock and P .. 'lock:task:' .. more.lock
    local stalls = tonumber(more.stalls or '0')
    local is_last_chance = stalls > 0 and stalls >= most_stalls
    if cancelled and redis.call('EXISTS', flags[i]) == 1 then
      redis.call('DEL', flags[i])
      close(id, 'CANCELLED', kind, { c = more.c, wait = more.wait, hook = more.hook }, '{"error":{"type":"Cancelled","message":"cancelled before it started"}}')
    elseif more.ddl and tonumber(more.ddl) <= now then
      close(id, 'TIMEOUT', kind, { c = more.c, wait = more.wait, hook = more.hook }, '{"error":{"type":"DeadlineExceeded","message":"its deadline passed before it started"}}')
    elseif is_last_chance and not may_be_tried(id) or lock and not redis.call('SET', lock, worker, 'NX', 'PX', ARGV[11]) then
      redis.call('HSET', key, 'status', 'PENDING', 'due', int(now + 500))
      redis.call('ZADD', KEYS[5], string.format('%.3f', (now + 500) / 1000), id)
      if more.c then uncache(id) end
    else
      token = token + 1
      local tok, attempt, extra = int(token), more.n and int(more.n + 1) or '1', ''
      if f[3] then
        local left = tonumber(more.tmo or ARGV[9])
        if more.ddl then left = math.min(left, more.ddl - now) end
        extra = int(left) .. ':' .. int(stalls) .. ':' .. (more.lock or '') .. ':' .. (more.hook or '')
      end
      redis.call('HSET', key, 'status', 'PROCESSING', 'n', attempt, 'tok', tok, 'start', NOW)
      if more.c then uncache(id) end
      if more.lock or more.wait or more.hook then marked[#marked + 1] = id end
      scores[#scores + 1] = tok
      scores[#scores + 1] = id
      local at = #answer
      answer[at + 1], answer[at + 2], answer[at + 3] = id, kind, attempt
      answer[at + 4], answer[at + 5], answer[at + 6] = tok, requests[i] or '{}', extra
      announce('started', id, kind)
    end
  end
end
push('ZADD', KEYS[3], scores)
push('SADD', P .. 'task:marked', marked)
answer[1] = #scores / 2
settle()
if #ids > #scores / 2 then wake() end
return answer

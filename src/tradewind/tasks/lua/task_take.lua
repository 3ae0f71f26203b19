#!lua
-- A worker takes assigned tasks from its queue into its in-flight set, each with a new fencing token.
-- KEYS 1 worker:{id} 2 worker:{id}:queue 3 worker:{id}:inflight 4 task:token 5 queue:delayed
-- ARGV 6 worker id 7 generation 8 how many at most 9 default timeout ms 10 window ('' = unchanged) 11 ms that a lock lasts
-- Returns {-1} when the worker is not registered any more (evicted or replaced), else flat
--   {n, then per task: id, type, attempt, token, ms that it may take, request line, lock name or '', stalls so far}.
-- include: shared
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[7] then return { -1 } end
local worker = ARGV[6]
if ARGV[10] ~= '' then redis.call('HSET', KEYS[1], 'window', ARGV[10]) end
local many = tonumber(ARGV[8])
local ids = many > 0 and redis.call('LRANGE', KEYS[2], -many, -1) or {}
if #ids == 0 then return { 0 } end

local flags, bodies = {}, {}
for i = 1, #ids do
  flags[i] = P .. 'task:cancel:' .. ids[i]
  bodies[i] = P .. 'task:' .. ids[i] .. ':body'
end
local cancelled = redis.call('EXISTS', unpack(flags)) > 0
local requests = redis.call('MGET', unpack(bodies))

redis.call('LTRIM', KEYS[2], 0, -(#ids + 1))
local token = redis.call('INCRBY', KEYS[4], #ids) - #ids
local answer, scores = { 0 }, {}
for i = #ids, 1, -1 do
  local id = ids[i]
  local key = P .. 'task:' .. id
  local f = redis.call('HMGET', key, 'status', 'worker', 'type', 'n', 'tmo', 'ddl', 'lock', 'c', 'wait', 'stalls')
  if f[1] == 'ASSIGNED' and f[2] == worker then
    local task = { type = f[3], c = f[8], wait = f[9] }
    local lock = f[7] and P .. 'lock:task:' .. f[7]
    if cancelled and redis.call('EXISTS', flags[i]) == 1 then
      redis.call('DEL', flags[i])
      close(id, 'CANCELLED', task, '{"error":{"type":"Cancelled","message":"cancelled before it started"}}')
    elseif f[6] and tonumber(f[6]) <= now then
      close(id, 'TIMEOUT', task, '{"error":{"type":"DeadlineExceeded","message":"its deadline passed before it started"}}')
    elseif lock and not redis.call('SET', lock, worker, 'NX', 'PX', ARGV[11]) then
      redis.call('HSET', key, 'status', 'PENDING', 'due', int(now + 500))
      redis.call('ZADD', KEYS[5], string.format('%.3f', (now + 500) / 1000), id)
      if f[8] then uncache(id) end
    else
      token = token + 1
      local attempt = tonumber(f[4] or '0') + 1
      local last = now + tonumber(f[5] or ARGV[9])
      if f[6] and tonumber(f[6]) < last then last = tonumber(f[6]) end
      redis.call('HSET', key, 'status', 'PROCESSING', 'n', attempt, 'tok', int(token), 'start', NOW)
      if f[8] then uncache(id) end
      scores[#scores + 1] = int(last)
      scores[#scores + 1] = id
      local at = #answer
      answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = id, f[3], attempt, int(token)
      answer[at + 5], answer[at + 6], answer[at + 7] = int(last - now), requests[i] or '{}', f[7] or ''
      answer[at + 8] = f[10] or '0'
      announce('started', id, f[3])
    end
  end
end
push('ZADD', KEYS[3], scores)
answer[1] = #scores / 2
settle()
if #ids > #scores / 2 then wake() end
return answer

-- Shared by the scripts that give a worker's tasks back. Keys built: worker:{id}:queue, worker:{id}:inflight, queue:high,
-- queue:normal, queue:delayed, queue:parked, queue:parked:{priority}:{route}.

local function place_of(priority, kind, labels) return priority .. ':' .. (kind or '') .. (labels and '@' .. labels or '') end

-- Put ids back at the head of their queues, in their order (oldest first). Where tasks of the same route are parked, that
-- is the head of the parking list: it is read before the queue, and what stands there is younger.
local function back(entries)
  local places, lists = {}, {}
  for _, place in ipairs(redis.call('SMEMBERS', P .. 'queue:parked')) do places[place] = P .. 'queue:parked:' .. place end
  for i = #entries, 1, -1 do
    local key = places[entries[i].place] or P .. 'queue:' .. entries[i].pri
    lists[key] = lists[key] or {}
    table.insert(lists[key], entries[i].id)
  end
  for key, ids in pairs(lists) do push('RPUSH', key, ids) end
  for _, e in ipairs(entries) do
    local key = P .. 'task:' .. e.id
    redis.call('HSET', key, 'status', 'QUEUED', 'tok', '0')
    redis.call('HDEL', key, 'worker', 'start')
    if e.c then uncache(e.id) end
  end
end

-- The `limit` youngest assigned tasks of a worker's queue (0 = all), oldest first; the ids leave the queue. The youngest,
-- because each step of several puts its tasks before those of the step before.
local function unassign(worker, limit)
  local key, entries = P .. 'worker:' .. worker .. ':queue', {}
  local ids = redis.call('LRANGE', key, 0, limit - 1)
  for i = #ids, 1, -1 do
    local f = fields(P .. 'task:' .. ids[i], 'status', 'worker', 'pri', 'c', 'type', 'lab')
    if f[1] == 'ASSIGNED' and f[2] == worker then
      local pri = priority_of(f[3])
      entries[#entries + 1] = { id = ids[i], pri = pri, c = f[4], place = place_of(pri, f[5], f[6]) }
    end
  end
  redis.call('LTRIM', key, #ids, -1)
  return entries, #ids
end

-- The `limit` youngest tasks that a lost worker was running (0 = all), oldest first: each counts a stall; too many stalls, or a cancel, end it. From the
-- second stall on they start again one after the other within two seconds (queue:delayed), so that one that kills its
-- workers parts from those that only stood beside it; the last chance is one at a time in a worker (task_take).
local function stall(worker, limit, max_stalls)
  local key, entries, again = P .. 'worker:' .. worker .. ':inflight', {}, {}
  local ids = redis.call('ZRANGE', key, limit > 0 and -limit or 0, -1)
  push('ZREM', key, ids)
  for _, id in ipairs(ids) do
    local task = P .. 'task:' .. id
    local f = fields(task, 'status', 'worker', 'pri', 'c', 'type', 'wait', 'stalls', 'lock', 'lab', 'ddl', 'hook')
    if f[1] == 'PROCESSING' and f[2] == worker then
      local pri = priority_of(f[3])
      local t = { id = id, pri = pri, c = f[4], wait = f[6], hook = f[11], place = place_of(pri, f[5], f[9]) }
      local stalls = (tonumber(f[7] or '') or 0) + 1
      redis.call('HSET', task, 'stalls', stalls, 'x', '1')
      if f[8] then unlock(f[8], worker) end
      if redis.call('DEL', P .. 'task:cancel:' .. id) == 1 then
        close(id, 'CANCELLED', f[5], t, '{"error":{"type":"Cancelled","message":"cancelled; its worker was lost"}}')
      elseif numeric(f[10]) and tonumber(f[10]) <= now then
        close(id, 'TIMEOUT', f[5], t, '{"error":{"type":"DeadlineExceeded","message":"its deadline passed when its worker was lost"}}')
      elseif stalls > max_stalls then
        close(id, 'DEAD', f[5], t, '{"error":{"type":"WorkerLost","message":"its worker was lost ' .. stalls .. ' times"}}')
      elseif stalls == 1 then
        entries[#entries + 1] = t
      else
        again[#again + 1] = t
      end
    end
  end
  for i, t in ipairs(again) do
    local due = now + math.floor((i - 1) * 2000 / #again)
    redis.call('HSET', P .. 'task:' .. t.id, 'status', 'PENDING', 'tok', '0', 'due', int(due))
    redis.call('HDEL', P .. 'task:' .. t.id, 'worker', 'start')
    redis.call('ZADD', P .. 'queue:delayed', string.format('%.3f', due / 1000), t.id)
    if t.c then uncache(t.id) end
  end
  if #again > 0 then wake() end
  return entries, #ids
end

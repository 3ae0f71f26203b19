-- Shared by all task scripts. ARGV 1 key prefix, 2 now in ms ('' = the server's clock), 3 events channel,
-- 4 '1' when ended tasks go to the archive, 5 ms that an ended task's record lives when they do not.
-- Keys built here from the prefix: task:{id}, task:{id}:body, task:cache:, task:status:, task:cancel:, lock:task:,
-- metrics:task:count:, task:outbox, task:outbox:count, queue:dead.
local P = ARGV[1]
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local function int(n) return string.format('%.0f', n) end
local NOW, SEC = int(now), int(math.floor(now / 1000))
local TERMINAL = { SUCCESS = 'completed', FAILED = 'failed', CANCELLED = 'cancelled', TIMEOUT = 'failed', DEAD = 'dead' }

local heard
-- Publish a transition, unless nobody listens (in a cluster the listener may be on another node).
local function announce(event, id, kind)
  if heard == nil then
    heard = string.find(P, '{', 1, true) ~= nil or redis.call('PUBSUB', 'NUMSUB', ARGV[3])[2] > 0
      or redis.call('PUBSUB', 'NUMPAT') > 0
  end
  if heard then
    redis.call('PUBLISH', ARGV[3], '{"event":"task_' .. event .. '","task_id":"' .. id .. '","task_type":"' .. kind
      .. '","timestamp":' .. SEC .. '}')
  end
end

local function uncache(id)
  redis.call('DEL', P .. 'task:cache:' .. id, P .. 'task:status:' .. id)
  redis.call('HDEL', P .. 'task:' .. id, 'c')
end

local function unlock(name, worker)
  local key = P .. 'lock:task:' .. name
  if redis.call('GET', key) == worker then redis.call('DEL', key) end
end

local counts, ended, letters = {}, {}, {}
local function count(what, n) counts[what] = (counts[what] or 0) + n end

-- Put a task into a terminal state. f: type, c (cached), wait (clients), lock, worker. `settle` must follow.
local function close(id, status, f, outcome)
  local key = P .. 'task:' .. id
  redis.call('HSET', key, 'status', status, 'end', NOW)
  redis.call('APPEND', key .. ':body', '\n' .. outcome)
  if f.c then uncache(id) end
  if f.lock then unlock(f.lock, f.worker) end
  if f.wait then
    for client in string.gmatch(f.wait, '[^,]+') do redis.call('PUBLISH', P .. 'task:reply:' .. client, id) end
  end
  if status ~= 'SUCCESS' and status ~= 'CANCELLED' then
    redis.call('ZADD', P .. 'queue:dead', NOW, id)
    letters[id] = true
  end
  count(string.lower(status), 1)
  ended[#ended + 1] = id
  announce(TERMINAL[status], id, f.type)
end

-- Once, at the end of a script: counters, and the way of the ended ones to the archive (or their expiry).
local function settle()
  for what, n in pairs(counts) do redis.call('INCRBY', P .. 'metrics:task:count:' .. what, n) end
  if #ended == 0 then return end
  if ARGV[4] == '1' then
    redis.call('XADD', P .. 'task:outbox', '*', 'ids', table.concat(ended, ' '))
    redis.call('INCRBY', P .. 'task:outbox:count', #ended)
  else
    for i = 1, #ended do
      local ttl = letters[ended[i]] and 604800000 or ARGV[5] -- without an archive a dead letter waits 7 days
      redis.call('PEXPIRE', P .. 'task:' .. ended[i], ttl)
      redis.call('PEXPIRE', P .. 'task:' .. ended[i] .. ':body', ttl)
    end
  end
end

local function push(command, key, ids)
  for from = 1, #ids, 1000 do redis.call(command, key, unpack(ids, from, math.min(from + 999, #ids))) end
end

local function wake()
  local key = P .. 'scheduler:wake'
  if redis.call('EXISTS', key) == 0 then redis.call('LPUSH', key, '1') end
end

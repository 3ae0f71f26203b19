-- Shared by all task scripts. ARGV 1 key prefix, 2 now in ms ('' = the server's clock), 3 events channel,
-- 4 '1' when ended tasks go to the archive, 5 ms that an ended task's record lives when they do not.
-- A record may have been spoilt by hand: a number that is none counts as missing, a priority that is none as normal, and a
-- task without a type is passed over; doctor names it.
-- Keys built here from the prefix: task:{id}, task:{id}:body, task:cache:, task:status:, task:cancel:, lock:task:,
-- metrics:task:count:, task:outbox, task:outbox:count, task:marked, queue:dead.
-- A task hash has the field x when it has any of the rare ones (tmo, ddl, lock, lab, c, wait, tomb, stalls, hook, or n from
-- an earlier attempt), so that the usual task costs one short read; a running task with c, wait, lock, hook or a cancel flag
-- stands in the set task:marked. A task with a hook belongs to another room: when it ends here, its id goes to the list
-- task:ended:{hook} and the room is woken through the list {hook}:wake.
local P = ARGV[1]
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local function int(n) return string.format('%d', n) end
local NOW, SEC = int(now), int(math.floor(now / 1000))
local T = P .. 'task:'
local TERMINAL = { SUCCESS = 'completed', FAILED = 'failed', CANCELLED = 'cancelled', TIMEOUT = 'failed', DEAD = 'dead' }
local IS_ARCHIVED = ARGV[4] == '1'
local FORGETS = not IS_ARCHIVED and ARGV[5] == '0' -- results are off: what ends well is gone at once
local LETTER_MS = '604800000' -- without an archive a dead letter waits 7 days

local heard, has_patterns
-- Whether anybody may hear what is published there (in a cluster the listener may be on another node).
local function is_heard(channel)
  if has_patterns == nil then
    has_patterns = string.find(P, '{', 1, true) ~= nil or redis.call('PUBSUB', 'NUMPAT') > 0
  end
  return has_patterns or redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
end
-- Publish a transition, unless nobody listens.
local function announce(event, id, kind)
  if heard == nil then heard = is_heard(ARGV[3]) end
  if heard then
    redis.call('PUBLISH', ARGV[3], '{"event":"task_' .. event .. '","task_id":"' .. id .. '","task_type":"' .. (kind or '')
      .. '","timestamp":' .. SEC .. '}')
  end
end

-- Fields of a hash; none when something else stands there: one record that was written over holds up nobody.
local function fields(key, ...)
  local f = redis.pcall('HMGET', key, ...)
  return f.err and {} or f
end

-- How many tasks a worker holds; nil when something else stands where its lists belong: it gets no more.
local function load_of(worker)
  local queued = redis.pcall('LLEN', P .. 'worker:' .. worker .. ':queue')
  local running = redis.pcall('ZCARD', P .. 'worker:' .. worker .. ':inflight')
  return type(queued) == 'number' and type(running) == 'number' and queued + running or nil
end

-- A field as text if it is a number, else nil.
local function numeric(text) return text and tonumber(text) and text or nil end
local function priority_of(text) return text == 'high' and 'high' or 'normal' end

local NOTHING = {}
-- The rare fields of a task; x is its x field as read.
local function rare(id, x)
  if not x then return NOTHING end
  local f = fields(T .. id, 'c', 'wait', 'lock', 'tmo', 'ddl', 'lab', 'tomb', 'stalls', 'worker', 'n', 'hook', 'start')
  return { c = f[1], wait = f[2], lock = f[3], tmo = numeric(f[4]), ddl = numeric(f[5]), lab = f[6], tomb = f[7],
    stalls = numeric(f[8]), worker = f[9], n = numeric(f[10]), hook = f[11], start = numeric(f[12]) }
end

local function uncache(id)
  redis.call('DEL', P .. 'task:cache:' .. id, P .. 'task:status:' .. id)
  redis.call('HDEL', T .. id, 'c')
end

local function unlock(name, worker)
  local key = P .. 'lock:task:' .. name
  if redis.call('GET', key) == worker then redis.call('DEL', key) end
end

local function wake_on(key)
  if redis.call('EXISTS', key) == 0 then redis.call('LPUSH', key, '1') end
end

local counts, ended = {}, {}
local function count(what, n) counts[what] = (counts[what] or 0) + n end

-- Put a task into a terminal state. f: its rare fields; kind: its type; body: all of its body if known (else the
-- outcome is appended). `settle` must follow.
local function close(id, status, kind, f, outcome, body)
  local key, is_letter = T .. id, status ~= 'SUCCESS' and status ~= 'CANCELLED'
  local name = key .. ':body'
  if FORGETS and not is_letter and not f.hook then
    redis.call('UNLINK', key, name)
  else
    redis.call('HSET', key, 'status', status, 'end', NOW)
    body = body or (redis.call('GET', name) or '{}') .. '\n' .. outcome
    if IS_ARCHIVED then
      redis.call('SET', name, body)
    else
      local ttl = is_letter and LETTER_MS or ARGV[5]
      redis.call('SET', name, body, 'PX', ttl)
      redis.call('PEXPIRE', key, ttl)
    end
  end
  if f ~= NOTHING then
    if f.c then uncache(id) end
    if f.lock and f.worker then unlock(f.lock, f.worker) end
    if f.wait then
      for client in string.gmatch(f.wait, '[^,]+') do redis.call('PUBLISH', P .. 'task:reply:' .. client, id) end
    end
    redis.call('SREM', P .. 'task:marked', id)
    if f.hook then
      redis.call('RPUSH', P .. 'task:ended:' .. f.hook, id)
      wake_on(P .. f.hook .. ':wake')
    end
  end
  if is_letter then redis.call('ZADD', P .. 'queue:dead', NOW, id) end
  count(status, 1)
  ended[#ended + 1] = id
  announce(TERMINAL[status], id, kind)
end

-- Once, at the end of a script: counters, and the way of the ended ones to the archive.
local function settle()
  for what, n in pairs(counts) do redis.call('INCRBY', P .. 'metrics:task:count:' .. string.lower(what), n) end
  if IS_ARCHIVED and #ended > 0 then
    redis.call('XADD', P .. 'task:outbox', '*', 'ids', table.concat(ended, ' '))
    redis.call('INCRBY', P .. 'task:outbox:count', #ended)
  end
end

local function push(command, key, ids)
  for from = 1, #ids, 1000 do redis.call(command, key, unpack(ids, from, math.min(from + 999, #ids))) end
end

local function wake() wake_on(P .. 'scheduler:wake') end

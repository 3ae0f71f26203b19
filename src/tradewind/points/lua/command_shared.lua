-- Shared by all command scripts. ARGV 1 key prefix, 2 now in ms ('' = the server's clock), 3 events channel.
-- Keys built here from the prefix: cmd:{id}, cmd:open, cmd:journal, cmd:effects, comsrv:{channel}:todo, :doing, :outcomes.
local P = ARGV[1]
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local function int(n) return string.format('%d', n) end
local NOW = int(now)
local C = P .. 'cmd:'

-- What the scripts look at in a command; status is false when there is none of that id.
local function read(id)
  local f = redis.call('HMGET', C .. id, 'status', 'address', 'value', 'source', 'who', 'reason', 'expires_ms',
    'timeout_ms', 'token', 'result')
  return { status = f[1], address = f[2], value = f[3], source = f[4], who = f[5], reason = f[6], expires = f[7],
    timeout = f[8], token = f[9], result = f[10] }
end

local function todo_of(address) return P .. 'comsrv:' .. string.match(address, '^comsrv:(%d+):') .. ':todo' end
local function doing_of(address) return P .. 'comsrv:' .. string.match(address, '^comsrv:(%d+):') .. ':doing' end

local function journal(id, from, to, c, result, message, who)
  redis.call('XADD', P .. 'cmd:journal', 'MAXLEN', '~', 10000, '*', 'id', id, 'from', from, 'to', to, 'at', NOW,
    'address', c.address, 'value', c.value, 'source', c.source or '', 'who', who or c.who or '', 'reason', c.reason or '',
    'result', result, 'message', message)
end

-- Write a transition down and announce it. c: as read before; who: whoever did it, if not the one who gave the command.
local function move(id, c, to, result, message, who)
  redis.call('HSET', C .. id, 'status', to, 'updated_at', NOW, 'result', result, 'message', message)
  journal(id, c.status, to, c, result, message, who)
  redis.call('PUBLISH', ARGV[3], '{"event":"command_' .. to .. '","command_id":"' .. id .. '","address":"' .. c.address
    .. '","status":"' .. to .. '","timestamp":' .. NOW .. '}')
end

-- Results after which nobody knows what the point stands at.
local UNSURE = { unknown = true, lost = true, unverified = true, differs = true }

-- Note at the point how its last command ended. `unsure` names the command that left it unknown, until a later one succeeds or
-- the point is read back (command_known); the board shall show that, too.
local function note_outcome(id, c, to, result, message, is_known)
  local channel, point = string.match(c.address, '^comsrv:(%d+):(%a:%d+)$')
  if not channel then return end
  local key, unsure = P .. 'comsrv:' .. channel .. ':outcomes', ''
  if UNSURE[result] and not is_known then
    unsure = id
    redis.call('HSET', C .. 'effects', id, c.address .. ' ? ' .. NOW)
  elseif to ~= 'success' and not is_known then
    local is_read, before = pcall(cjson.decode, redis.call('HGET', key, point) or '{}')
    if is_read and type(before) == 'table' and type(before.unsure) == 'string' then unsure = before.unsure end
  end
  redis.call('HSET', key, point, cjson.encode({ id = id, value = c.value or '', status = to, result = result, message = message,
    who = c.who or '', source = c.source or '', at = NOW, unsure = unsure }))
end

-- What the point stands at is not known since this command, which has not ended yet.
local function doubt(id, address)
  local channel, point = string.match(address, '^comsrv:(%d+):(%a:%d+)$')
  if not channel then return end
  local key = P .. 'comsrv:' .. channel .. ':outcomes'
  local is_read, outcome = pcall(cjson.decode, redis.call('HGET', key, point) or '')
  if not is_read or type(outcome) ~= 'table' or outcome.id ~= id then
    outcome = { id = id, value = '', status = 'executing', result = '', message = '', who = '', source = '', at = NOW }
  end
  outcome.unsure = id
  redis.call('HSET', key, point, cjson.encode(outcome))
  redis.call('HSET', C .. 'effects', id, address .. ' ? ' .. NOW)
end

-- Put a command into a terminal state. is_known: what the point stands at is known although the command did not succeed.
local function close(id, c, to, result, message, who, is_known)
  if c.status == 'pending' then redis.call('LREM', todo_of(c.address), 0, id) end
  if c.status == 'executing' then
    local key = doing_of(c.address)
    local doing = redis.call('GET', key)
    if doing and string.match(doing, '^%S+') == id then redis.call('DEL', key) end
  end
  redis.call('ZREM', P .. 'cmd:open', id)
  note_outcome(id, c, to, result, message, is_known)
  move(id, c, to, result, message, who)
end

-- End the command that another owner was carrying out; its id. Returns nil and the command when it is this owner's own.
local function lose_former(key, owner)
  local doing = redis.call('GET', key)
  local id, whose, nonce = string.match(doing or '', '^(%S+) (%S+) (%S+)$')
  if not id then return nil end
  local c = read(id)
  if c.status ~= 'executing' then return nil end
  if whose == owner then return nil, id, nonce end
  close(id, c, 'timeout', 'lost', 'its process was lost while it was carried out: the outcome is unknown')
  return id
end

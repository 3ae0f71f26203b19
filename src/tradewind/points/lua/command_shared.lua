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

local STATUS = { pending = true, executing = true, success = true, failed = true, cancelled = true, timeout = true }

-- What the scripts look at in a command; status is false when there is none of that id. Other programs write commands, too, with
-- the fields of the protocol only: the address of a bare point then stands in model_name and field_name. `fault`: why nobody can
-- carry it out.
local function read(id)
  local f = redis.pcall('HMGET', C .. id, 'status', 'address', 'value', 'source', 'who', 'reason', 'expires_ms',
    'timeout_ms', 'token', 'result', 'model_name', 'field_name', 'created_at')
  if f.err then return { status = false, fault = 'cmd:' .. id .. ' is no hash' } end
  local c = { status = f[1], address = f[2], value = f[3], source = f[4], who = f[5], reason = f[6], expires = tonumber(f[7] or ''),
    timeout = tonumber(f[8] or ''), token = f[9], result = f[10], created = tonumber(f[13] or '') }
  if not c.address then
    local channel, kind, point = string.match((f[11] or '') .. ' ' .. (f[12] or ''), '^channel_(%d+) (%a)_(%d+)$')
    if channel then c.address, c.is_short = 'comsrv:' .. channel .. ':' .. kind .. ':' .. point, true end
  end
  local number = tonumber(c.value or '')
  if not c.status then
    c.fault = 'it has no status'
  elseif not STATUS[c.status] then
    c.fault = 'its status ' .. string.sub(c.status, 1, 40) .. ' is none of pending, executing, success, failed, cancelled, timeout'
  elseif not string.match(c.address or '', '^comsrv:%d+:[ca]:%d+$') then
    c.fault = 'it names no point of kind c or a: give it an address, or channel_1001 and a_40001 as model_name and field_name'
  elseif not number or number ~= number or math.abs(number) == math.huge then
    c.fault = 'its value is no finite number'
  end
  return c
end

local function channel_of(address) return string.match(address or '', '^comsrv:(%d+):') end

local function journal(id, from, to, c, result, message, who)
  redis.call('XADD', P .. 'cmd:journal', 'MAXLEN', '~', 10000, '*', 'id', id, 'from', from or '', 'to', to, 'at', NOW,
    'address', c.address or '', 'value', c.value or '', 'source', c.source or '', 'who', who or c.who or '', 'reason', c.reason or '',
    'result', result, 'message', message)
end

-- Write a transition down and announce it. c: as read before; who: whoever did it, if not the one who gave the command.
local function move(id, c, to, result, message, who)
  redis.call('HSET', C .. id, 'status', to, 'updated_at', NOW, 'result', result, 'message', message)
  journal(id, c.status, to, c, result, message, who)
  redis.call('PUBLISH', ARGV[3], '{"event":"command_' .. to .. '","command_id":"' .. id .. '","address":"' .. (c.address or '')
    .. '","status":"' .. to .. '","timestamp":' .. NOW .. '}')
end

-- Results after which nobody knows what the point stands at.
local UNSURE = { unknown = true, lost = true, unverified = true, differs = true }

-- Note at the point how its last command ended. `unsure` names the command that left it unknown, until a later one succeeds or
-- the point is read back (command_known); the board shall show that, too.
local function note_outcome(id, c, to, result, message, is_known)
  local channel, point = string.match(c.address or '', '^comsrv:(%d+):(%a:%d+)$')
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
  local channel = channel_of(c.address)
  if channel and c.status == 'pending' then redis.call('LREM', P .. 'comsrv:' .. channel .. ':todo', 0, id) end
  if channel and c.status == 'executing' then
    local key = P .. 'comsrv:' .. channel .. ':doing'
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

-- Take an entry that nobody can carry out from a list, and say why: in its record, where it has one, and in the journal.
local function refuse(id, c, todo, why)
  redis.call('LREM', todo, 0, id)
  redis.call('ZREM', P .. 'cmd:open', id)
  if c.status then
    note_outcome(id, c, 'failed', 'refused', why)
    move(id, c, 'failed', 'refused', why, 'station')
    if redis.call('TTL', C .. id) < 0 then redis.call('EXPIRE', C .. id, 86400) end
  else
    journal(id, 'todo', 'failed', c, 'refused', why, 'station')
  end
end

-- Why an entry of this channel's list cannot be carried out; nil when it can, or has ended. Fills in what a foreign one lacks.
local function fault_of(id, c, todo, expiry_ms, timeout_ms)
  if not c.status and not c.fault then c.fault = 'it has no status' end
  if c.fault then
    local is_gone = not c.status and redis.call('EXISTS', C .. id) == 0
    return is_gone and 'there is no record cmd:' .. id or c.fault
  end
  if c.status ~= 'pending' then return nil end
  if todo ~= P .. 'comsrv:' .. channel_of(c.address) .. ':todo' then return 'it waits in the list of another channel' end
  c.expires = c.expires or (c.created or now) + expiry_ms
  if not c.timeout or c.is_short then
    c.timeout = c.timeout or timeout_ms
    redis.call('HSET', C .. id, 'id', id, 'address', c.address, 'expires_ms', int(c.expires), 'timeout_ms', int(c.timeout))
  end
  if redis.call('TTL', C .. id) < 0 then redis.call('EXPIRE', C .. id, 86400) end
  return nil
end

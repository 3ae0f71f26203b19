-- Shared by all command scripts. ARGV 1 key prefix, 2 now in ms ('' = the server's clock), 3 events channel.
-- Keys built here from the prefix: cmd:{id}, cmd:open, cmd:journal, comsrv:{channel}:todo, comsrv:{channel}:doing.
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

-- Put a command into a terminal state.
local function close(id, c, to, result, message, who)
  if c.status == 'pending' then redis.call('LREM', todo_of(c.address), 0, id) end
  if c.status == 'executing' then
    local key = doing_of(c.address)
    local doing = redis.call('GET', key)
    if doing and string.match(doing, '^%S+') == id then redis.call('DEL', key) end
  end
  redis.call('ZREM', P .. 'cmd:open', id)
  move(id, c, to, result, message, who)
end

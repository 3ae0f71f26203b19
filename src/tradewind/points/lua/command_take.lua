#!lua flags=allow-oom
-- The owner of a channel takes its next command: pending → executing, with a fencing token. What has expired ends timeout on
-- the way, what cannot be carried out ends failed. A command that another owner of the channel was carrying out has lost it: it ends timeout, its outcome unknown.
-- KEYS 1 comsrv:{channel}:todo 2 comsrv:{channel}:doing 3 cmd:open 4 cmd:token
-- ARGV 4 owner 5 nonce of this call 6 ms that an execution may overrun its timeout before it counts as lost
--   7 ms until a command expires that does not say it 8 ms that its execution may take
-- Returns the fields of the command, flat; nothing when none waits, or when this owner is still carrying one out.
-- include: command_shared
local _, own, nonce = lose_former(KEYS[2], ARGV[4])
if own then
  return nonce == ARGV[5] and redis.call('HGETALL', C .. own) or {} -- the first reply was lost
end
for _ = 1, 100 do
  local id = redis.call('LINDEX', KEYS[1], -1)
  if not id then return {} end
  local c = read(id)
  local fault = fault_of(id, c, KEYS[1], ARGV[7], ARGV[8])
  if fault then
    refuse(id, c, KEYS[1], fault)
  elseif c.status ~= 'pending' then
    redis.call('RPOP', KEYS[1])
    if c.status ~= 'executing' then redis.call('ZREM', KEYS[3], id) end
  elseif c.expires <= now then
    close(id, c, 'timeout', 'expired', 'it expired before it was carried out')
  else
    redis.call('RPOP', KEYS[1])
    local token = int(redis.call('INCR', KEYS[4]))
    redis.call('HSET', C .. id, 'owner', ARGV[4], 'token', token)
    redis.call('SET', KEYS[2], id .. ' ' .. ARGV[4] .. ' ' .. ARGV[5], 'PX', 86400000)
    redis.call('ZADD', KEYS[3], int(now + c.timeout + ARGV[6]), id)
    move(id, c, 'executing', '', '')
    return redis.call('HGETALL', C .. id)
  end
end
return {}

#!lua flags=allow-oom
-- Look through the commands that wait for a channel: those of other programs get a deadline, those that nobody can carry out end
-- failed, one by one.
-- KEYS 1 comsrv:{channel}:todo 2 cmd:open
-- ARGV 4 ms until a command expires that does not say it 5 ms that its execution may take 6 how many at most
-- Returns {how many were adopted, then the ids that were refused}.
-- include: command_shared
local reply = { 0 }
for _, id in ipairs(redis.call('LRANGE', KEYS[1], -ARGV[6], -1)) do
  local c = read(id)
  local fault = fault_of(id, c, KEYS[1], ARGV[4], ARGV[5])
  if fault then
    refuse(id, c, KEYS[1], fault)
    reply[#reply + 1] = id
  elseif c.status == 'pending' and not redis.call('ZSCORE', KEYS[2], id) then
    redis.call('ZADD', KEYS[2], int(c.expires), id)
    reply[1] = reply[1] + 1
  end
end
return reply

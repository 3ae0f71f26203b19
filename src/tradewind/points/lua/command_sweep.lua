#!lua flags=allow-oom
-- End the commands whose time is over: those that wait have expired, those being carried out have an unknown outcome.
-- KEYS 1 cmd:open
-- ARGV 4 how many at most
-- Returns the ids of those that ended.
-- include: command_shared
local ended = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', NOW, 'BYSCORE', 'LIMIT', 0, ARGV[4])) do
  local c = read(id)
  if c.status == 'pending' then
    close(id, c, 'timeout', 'expired', 'it expired before it was carried out')
    ended[#ended + 1] = id
  elseif c.status == 'executing' then
    close(id, c, 'timeout', 'lost', 'nobody told how it ended in time: the outcome is unknown')
    ended[#ended + 1] = id
  else
    redis.call('ZREM', KEYS[1], id)
    if c.fault and redis.call('EXISTS', C .. id) == 1 then journal(id, 'open', 'failed', c, 'refused', c.fault, 'station') end
  end
end
return ended

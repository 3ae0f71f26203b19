#!lua flags=allow-oom
-- The board shows these effects: forget them, unless something newer has come in their place.
-- KEYS 1 cmd:effects
-- ARGV pairs: id of the command, what it said
-- Returns how many went.
local gone = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then gone = gone + redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return gone

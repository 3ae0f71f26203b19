#!lua
-- List hashes that are written without a declared channel, and in a cluster the channels that have a feed of their own.
-- KEYS 1 points:channels 2 points:pushed 3 points:feeds
-- ARGV 1 '1' in a cluster, then pairs: channel, kind
-- Returns how many of them are not declared.
local new = 0
for i = 2, #ARGV, 2 do
  local name = ARGV[i] .. ':' .. ARGV[i + 1]
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then
    redis.call('SADD', KEYS[2], name)
    new = new + 1
  else
    redis.call('SREM', KEYS[2], name)
  end
  if ARGV[1] == '1' then redis.call('SADD', KEYS[3], ARGV[i]) end
end
return new

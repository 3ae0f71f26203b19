#!lua flags=allow-oom
-- Claim channels that are free, whose lease has ended, or that are ours already: then the lease is longer.
-- KEYS 1 points:owners
-- ARGV 1 now in ms ('' = the server's clock) 2 owner 3 lease ms, then channel ids
-- Returns 1 or 0 for each channel, in order: ours now, or another's.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local lease = ARGV[2] .. ':' .. string.format('%d', now + ARGV[3])
local replies, mine = {}, {}
for i = 4, #ARGV do
  local owner, ends = string.match(redis.call('HGET', KEYS[1], ARGV[i]) or '', '^(.*):(%d+)$')
  local ours = not owner or owner == ARGV[2] or tonumber(ends) <= now
  replies[#replies + 1] = ours and 1 or 0
  if ours then mine[#mine + 1] = ARGV[i] end
end
for _, id in ipairs(mine) do redis.call('HSET', KEYS[1], id, lease) end
return replies

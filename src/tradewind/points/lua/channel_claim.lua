#!lua flags=allow-oom
-- Claim channels that are free or whose lease has ended, up to this process's even share; longer leases for those that are ours.
-- KEYS 1 points:owners 2 points:pollers
-- ARGV 1 now in ms ('' = the server's clock) 2 owner 3 lease ms, then channel ids
-- Returns the share, 1 when another process has more than its share, then 1 or 0 for each channel, in order: ours now, or not.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local ends_ms = string.format('%d', now + ARGV[3])
local others = redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf')
local known = redis.call('ZSCORE', KEYS[2], ARGV[2])
if known and tonumber(known) > now then others = others - 1 end
local share = math.ceil((#ARGV - 3) / (others + 1))
local replies, mine, free, counts = { share, 0 }, {}, {}, {}
for i = 4, #ARGV do
  local owner, ends = string.match(redis.call('HGET', KEYS[1], ARGV[i]) or '', '^(.*):(%d+)$')
  replies[i - 1] = 0
  if owner == ARGV[2] then
    mine[#mine + 1] = i
  elseif not owner or tonumber(ends) <= now then
    free[#free + 1] = i
  else
    counts[owner] = (counts[owner] or 0) + 1
    if counts[owner] > share then replies[2] = 1 end
  end
end
for _, i in ipairs(free) do
  if #mine < share then mine[#mine + 1] = i end
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], ends_ms, ARGV[2])
for _, i in ipairs(mine) do
  replies[i - 1] = 1
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[2] .. ':' .. ends_ms)
end
return replies

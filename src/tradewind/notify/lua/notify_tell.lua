#!lua
-- Put a message of a program into the outbox, once for each idempotency key.
-- KEYS 1 notify:outbox 2 notify:keys
-- ARGV 1 now in ms ('' = the server's clock) 2 idempotency key 3 how long keys are kept, in ms 4 how many at most 5 how many
--   messages may wait, then names and values of the entry; the time is added here
-- Returns {1, id of the entry} told; {0, ''} it was told before; {-1, ''} too many messages wait.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local keep = tonumber(ARGV[3])
local seen = redis.call('ZSCORE', KEYS[2], ARGV[2])
if seen and tonumber(seen) > now - keep then return { 0, '' } end
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[5]) then return { -1, '' } end
local at = string.format('%.0f', now)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - keep))
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -tonumber(ARGV[4]))
redis.call('ZADD', KEYS[2], at, ARGV[2])
return { 1, redis.call('XADD', KEYS[1], '*', 'at', at, unpack(ARGV, 6)) }

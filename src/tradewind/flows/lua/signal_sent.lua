#!lua flags=allow-oom
-- The broker has confirmed these signals: they need not be sent again, unless their queue is lost before they arrive.
-- KEYS 1 flow:{f}:cycle:{n}:unsent 2 flows:unsent 3 flow:{f}:cycle:{n}:sent. ARGV 1 `flow:cycle`, then routing keys
-- Returns how many are left to send.
for at = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1 then redis.call('SADD', KEYS[3], ARGV[at]) end -- else it has arrived
end
local left = redis.call('HLEN', KEYS[1]) - redis.call('SCARD', KEYS[3])
if left == 0 then redis.call('ZREM', KEYS[2], ARGV[1]) end
return left

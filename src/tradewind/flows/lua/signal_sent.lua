#!lua flags=allow-oom
-- The broker has confirmed these signals: they need not be sent again.
-- KEYS 1 flow:{f}:cycle:{n}:unsent 2 flows:unsent. ARGV 1 `flow:cycle`, then routing keys
-- Returns how many are left.
for at = 2, #ARGV do redis.call('HDEL', KEYS[1], ARGV[at]) end
local left = redis.call('HLEN', KEYS[1])
if left == 0 then redis.call('ZREM', KEYS[2], ARGV[1]) end
return left

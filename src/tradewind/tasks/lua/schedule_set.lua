#!lua
-- Keep a periodic task; one that does not change keeps its next slot. KEYS 1 schedule:config 2 schedule:due 3 scheduler:wake
-- ARGV 1 name 2 definition 3 first slot ms. Returns the next slot as text.
local old, slot = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[2], ARGV[1])
if old == ARGV[2] and slot then return slot end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
if redis.call('EXISTS', KEYS[3]) == 0 then redis.call('LPUSH', KEYS[3], '1') end
return ARGV[3]

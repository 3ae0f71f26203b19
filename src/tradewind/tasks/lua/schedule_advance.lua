#!lua
-- Move a periodic task on to its next slot, unless it was changed or moved meanwhile. KEYS 1 schedule:config 2 schedule:due
-- ARGV 1 name 2 slot that was fired 3 next slot 4 definition as read. Returns 1 when moved.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[4] then return 0 end
local slot = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not slot or tonumber(slot) ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 1

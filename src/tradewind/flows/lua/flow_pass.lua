#!lua flags=allow-oom
-- Give up slots that were missed and go on with the next one. KEYS 1 flow:{f} 2 flows:due
-- ARGV 1 flow 2 due ms as the caller read it 3 next slot ms ('' none) 4 how many were missed
-- Returns 1, or 0 when the schedule has moved on meanwhile.
local due = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not due or tonumber(due) ~= tonumber(ARGV[2]) then return 0 end
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[1], 'next_execution', '0')
else
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
  redis.call('HSET', KEYS[1], 'next_execution', string.format('%.3f', tonumber(ARGV[3]) / 1000))
end
redis.call('HINCRBY', KEYS[1], 'missed', ARGV[4])
return 1

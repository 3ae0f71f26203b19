#!lua
-- Take a release over in order to roll it back: whoever carries it out is refused from now on. One that has changed
-- nothing yet just goes. A release that is finished after a rollback that left something begins with its first step.
-- KEYS 1 release:journal
-- ARGV 1 id 2 id of the rollback 3 for how many ms after its last beat another rollback counts as under way
-- Returns 1; 2 there was nothing to roll back, and the journal is gone; 0 another one has taken over, or there is none;
-- -1 another rollback is under way.
local journal = KEYS[1]
local found = redis.call('HMGET', journal, 'id', 'state', 'beat_ms')
if found[1] == ARGV[2] then return 1 end -- asked again: the first answer was lost
if found[1] ~= ARGV[1] then return 0 end
if found[2] == 'preparing' then
  redis.call('UNLINK', journal)
  return 2
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if found[2] == 'rolling_back' and now - (tonumber(found[3]) or 0) < tonumber(ARGV[3]) then return -1 end
redis.call('HSET', journal, 'id', ARGV[2], 'state', 'rolling_back', 'beat_ms', string.format('%.0f', now), 'done', 0)
return 1

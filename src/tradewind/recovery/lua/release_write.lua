#!lua
-- Note something in the journal of a release, if it is still that one.
-- KEYS 1 release:journal
-- ARGV 1 id 2 'set' fields, 'keep' fields that are not there yet, 'end' the journal goes; then pairs field, value
-- Returns 1; 0 another release or a rollback has taken over, or there is none.
local journal = KEYS[1]
if redis.call('HGET', journal, 'id') ~= ARGV[1] then return 0 end
if ARGV[2] == 'end' then
  redis.call('UNLINK', journal)
  return 1
end
local verb = ARGV[2] == 'keep' and 'HSETNX' or 'HSET'
local time = redis.call('TIME')
redis.call('HSET', journal, 'beat_ms', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
for at = 3, #ARGV, 2 do redis.call(verb, journal, ARGV[at], ARGV[at + 1]) end
return 1

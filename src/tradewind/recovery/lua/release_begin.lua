#!lua
-- Begin the journal of a release, or take over the one of an interrupted release: what was before that one stays noted.
-- KEYS 1 release:journal
-- ARGV 1 id 2 note 3 for how many ms after its last beat a rollback counts as under way
-- Returns 1; 0 a rollback is under way, and nothing was changed.
local journal = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = redis.call('HGET', journal, 'state')
local beat = tonumber(redis.call('HGET', journal, 'beat_ms')) or 0
if state == 'rolling_back' and now - beat < tonumber(ARGV[3]) then return 0 end
if state == 'preparing' then redis.call('DEL', journal) end -- it had changed nothing
for _, field in ipairs(redis.call('HKEYS', journal)) do
  if string.find(field, '^step:') then redis.call('HDEL', journal, field) end
end
local at = string.format('%.0f', now)
if redis.call('HSETNX', journal, 'started_ms', at) == 1 then
  redis.call('HSET', journal, 'state', 'preparing')
else
  redis.call('HSET', journal, 'state', 'open') -- something was changed, also if a rollback was interrupted
end
redis.call('HSET', journal, 'id', ARGV[1], 'note', ARGV[2], 'beat_ms', at, 'total', 0, 'done', 0, 'is_ready', 0)
return 1

#!lua
-- Faults that rooms reported become alarms, together with how far the stream is read: none is missed and none counts twice.
-- KEYS 1 station:cursors
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock) 3 reader 4 its cursor as the caller knows it ('' = none) 5 the
--   cursor afterwards, then per fault raise and the alarm as JSON, or clear and JSON with its source and why
-- Returns 1 stored, also when it was stored before; 0 somebody else was faster, nothing is changed.
-- include: alarm
local cursor = redis.call('HGET', KEYS[1], ARGV[3]) or ''
if cursor == ARGV[5] then return 1 end
if cursor ~= ARGV[4] then return 0 end
local ctx = alarm_context(ARGV[1], ARGV[2])
for n = 6, #ARGV, 2 do
  if ARGV[n] == 'raise' then
    alarm_raise(ctx, cjson.decode(ARGV[n + 1]))
  else
    local c = cjson.decode(ARGV[n + 1])
    alarm_clear(ctx, 'station', c.source, nil, nil, c.why)
  end
end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
return 1

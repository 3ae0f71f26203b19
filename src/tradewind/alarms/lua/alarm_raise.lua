#!lua
-- Raise alarms, in this order; one that is open already counts up.
-- KEYS 1 alarm:open (for the slot)
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock), then each alarm as JSON, as alarms/alarm says
-- Returns per alarm {id, 1 if it is new}.
-- include: alarm
local ctx = alarm_context(ARGV[1], ARGV[2])
local replies = {}
for n = 3, #ARGV do
  local found = alarm_raise(ctx, cjson.decode(ARGV[n]))
  replies[#replies + 1] = { found[1], found[2] and 1 or 0 }
end
return replies

#!lua
-- Bring open alarms back from a copy, with every index; one that is there, or whose place is taken, stays as it is.
-- KEYS 1 alarm:open (for the slot)
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock), then the fields of each alarm's hash as JSON
-- Returns per alarm 1 restored; 0 it, or another one of its rule and source, is there; -1 it is no whole open alarm.
-- include: alarm
local ctx = alarm_context(ARGV[1], ARGV[2])
local replies = {}
for n = 3, #ARGV do replies[#replies + 1] = alarm_restore(ctx, cjson.decode(ARGV[n])) end
return replies

#!lua
-- The conditions of these alarms hold no longer: resolve them, or note it where only an operator resolves.
-- KEYS 1 alarm:open (for the slot)
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock), then per alarm rule id, source, actual value
-- Returns per alarm its id, '' when none is open.
-- include: alarm
local ctx = alarm_context(ARGV[1], ARGV[2])
local replies = {}
for n = 3, #ARGV, 3 do replies[#replies + 1] = alarm_clear(ctx, ARGV[n], ARGV[n + 1], ARGV[n + 2]) or '' end
return replies

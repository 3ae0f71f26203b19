#!lua
-- A rule was disabled or deleted: mark its open alarms and resolve them.
-- KEYS 1 alarm:open (for the slot)
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock) 3 rule id 4 disabled|deleted
-- Returns how many there were.
-- include: alarm
return alarm_end_rule(alarm_context(ARGV[1], ARGV[2]), ARGV[3], ARGV[4])

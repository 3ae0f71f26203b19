#!lua
-- An execution has ended: write it to the history of its rule and take it out of the outbox.
-- KEYS 1 rulesrv:outbox
-- ARGV 1 JSON of script_context.rule_context 2 now in ms ('' = the server's clock) 3 id of the outbox entry 4 rule id 5 the execution as
--   JSON 6 1 if triggered 7 1 if failed 8 ms it took
-- Returns 1 done; 0 it was done before.
-- include: alarms/alarm
-- include: rule_steps
if redis.call('XDEL', KEYS[1], ARGV[3]) == 0 then return 0 end
local numbers = { tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]) }
rule_told(alarm_context(ARGV[1], ARGV[2]), { 'told', ARGV[4], ARGV[5], unpack(numbers) })
return 1

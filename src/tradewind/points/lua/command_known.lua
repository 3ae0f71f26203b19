#!lua flags=allow-oom
-- A point that a command left unknown has been read back: note the value for the board.
-- KEYS 1 comsrv:{channel}:outcomes 2 cmd:effects
-- ARGV 4 address 5 kind:id of the point 6 id of the command that left it unknown 7 value
-- Returns {1, ms}; {0} something else is known of the point by now.
-- include: command_shared
local is_read, outcome = pcall(cjson.decode, redis.call('HGET', KEYS[1], ARGV[5]) or '')
if not is_read or type(outcome) ~= 'table' or outcome.unsure ~= ARGV[6] then return { 0 } end
outcome.unsure = ''
redis.call('HSET', KEYS[1], ARGV[5], cjson.encode(outcome))
redis.call('HSET', KEYS[2], ARGV[6], ARGV[4] .. ' ' .. ARGV[7] .. ' ' .. NOW)
return { 1, now }

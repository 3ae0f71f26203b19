#!lua
-- Note what a command will owe to its device (the 0 of a pulse), right before its first write. Only who carries it out may go on.
-- KEYS 1 cmd:{id} 2 cmd:owed
-- ARGV 4 id 5 token 6 address 7 ms until it is due 8 what is owed, as JSON
-- Returns {1} it is stored; {0, status} the command is not (any more) this caller's to carry out: nothing may be written.
-- include: command_shared
local c = read(ARGV[4])
if c.status ~= 'executing' or c.token ~= ARGV[5] then return { 0, c.status or '' } end
redis.call('HSET', KEYS[2], ARGV[6], int(now + ARGV[7]) .. ' 0 ' .. ARGV[4] .. ' ' .. ARGV[8])
return { 1 }

#!lua
-- Write one value if the board shows the one that the caller expects.
-- KEYS 1 points:feed 2 values of the point's hash 3 its times 4 its qualities 5 its mark
-- ARGV 1 to 15 as in board.lua, 16 id of the point 17 value that it must have, '' for none
-- Returns 1; 0 when it has another value, or a time that now is not newer than.
-- include: board
local _, last = string.match(redis.call('GET', KEYS[5]) or '', '^(%d+) (.*)$')
if last ~= ARGV[15] and (redis.call('HGET', KEYS[2], ARGV[16]) or '') ~= ARGV[17] then return 0 end
local written = board_write(1, 1)
return written[2] == 0 and 1 or 0

#!lua
-- Write batches of values for a program that is no driver: nothing is written when a channel's definition is not the one that it
-- was judged by. So a channel that gets a device meanwhile is not written to.
-- KEYS 1 points:channels:versions, then from 2 as in board_write
-- ARGV 1 number of channels, then per channel its id and the version that it must have ('-' = not declared); then as in board.lua
-- Returns {accepted, late, duplicates, equal, clamped, replaced, held} in points; nil when a definition is another one now.
-- include: board
local n = tonumber(ARGV[1])
for i = 2, 2 * n, 2 do
  if (redis.call('HGET', KEYS[1], ARGV[i]) or '-') ~= ARGV[i + 1] then return false end
end
return board_write(2, 2 + 2 * n)

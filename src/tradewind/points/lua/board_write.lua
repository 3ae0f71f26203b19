#!lua
-- Write batches of values: the newest of each point, its time and quality, the feed, the messages of the seed. Atomic.
-- KEYS 1 points:feed, then per batch: values, times, qualities, mark, substitutions
-- ARGV as in board.lua, from 1
-- Returns {accepted, late, duplicates, equal, clamped, replaced, held} in points.
-- include: board
return board_write(1, 1)

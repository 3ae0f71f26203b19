#!lua
-- Store a round of the model engine at once: outputs on the board, what calculations remember, how far the feed is read. So
-- nothing is counted twice, whenever the engine dies.
-- KEYS 1 models:leader 2 models:epoch 3 models:version 4 models:states 5 points:cursors, then from 6 as in points/board
-- ARGV 1 engine id 2 epoch 3 version of the definitions 4 number of cursors 5 number of states, then per cursor field and
--   value; per state field and value; then as in points/board
-- Returns 1 stored, also when it was stored before; 0 another one computes now; -1 the definitions have changed.
-- include: points/board
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
if (redis.call('GET', KEYS[3]) or '0') ~= ARGV[3] then return -1 end
local cursors, states = tonumber(ARGV[4]), tonumber(ARGV[5])
local at, is_done = 6, cursors > 0
for c = 0, cursors - 1 do
  if redis.call('HGET', KEYS[5], ARGV[at + 2 * c]) ~= ARGV[at + 2 * c + 1] then is_done = false end
end
if is_done then return 1 end -- a repeat after a lost reply: a cursor never stands still
board_write(6, at + 2 * cursors + 2 * states)
for c = 0, cursors - 1 do redis.call('HSET', KEYS[5], ARGV[at + 2 * c], ARGV[at + 2 * c + 1]) end
at = at + 2 * cursors
local last = at + 2 * states - 1
for from = at, last, 4000 do redis.call('HSET', KEYS[4], unpack(ARGV, from, math.min(from + 3999, last))) end
return 1

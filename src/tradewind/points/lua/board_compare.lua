#!lua
-- Write one value if the board shows the one that the caller expects.
-- KEYS 1 points:feed 2 values of the point's hash 3 its times 4 its qualities 5 its mark 6 substitutions
-- ARGV 1 to 16 as in board.lua, 17 id of the point 18 value that it must have, '' for none
-- Returns 1; 0 when it has another value.
-- include: board
local has, last = redis.call('HGET', KEYS[2], ARGV[17]), string.match(redis.call('GET', KEYS[5]) or '', '^%d+ (.*)$')
if last == ARGV[16] then return 1 end -- a repeat
if tonumber(has or '') ~= tonumber(ARGV[18]) then return 0 end
-- A device's clock may be ahead of ours: then the new value takes the time of the old one.
local now, ms = tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[3], ARGV[17]) or '0') or 0
if ms ~= ms or ms >= 1e13 then ms = 0 end
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
if ms > now and ms <= now + tonumber(ARGV[2]) then
  ARGV[1], ARGV[8] = string.format('%.0f', ms), string.format('%.0f', ms)
end
board_write(1, 1)
return 1

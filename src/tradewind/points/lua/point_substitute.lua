#!lua
-- Substitute a point: the board shows the value that somebody gives, with quality `substituted`, until it is released or its time is over.
-- What the device says meanwhile is kept beside it. One that is substituted already gets the new value.
-- KEYS 1 points:feed 2 values of the point's hash 3 its times 4 its qualities 5 its mark 6 substitutions of the channel
-- ARGV 1 now in ms ('' = the server's clock) 2 key as it stands in the feed 3 pub/sub channel 4 single|batch|off (+points) 5 '1' in a cluster
--   6 id of the point 7 value 8 ms that it lasts 9 who 10 reason 11 source 12 how many points of a channel may be substituted
--   13 ms that a time may lie in the future
-- Returns {1, ms of the value, ms when it ends}; {0} when too many points of the channel are.
-- include: board
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local field = string.sub(ARGV[2], -1) .. ':' .. ARGV[6]
if redis.call('HEXISTS', KEYS[6], field) == 0 and redis.call('HLEN', KEYS[6]) >= tonumber(ARGV[12]) then return { 0 } end
local ends = string.format('%.0f', now + ARGV[8])
local to = { name = ARGV[2], channel = ARGV[3], mode = ARGV[4], is_cluster = ARGV[5] == '1', stream = KEYS[1] }
local said = { ['until'] = ends, who = ARGV[9], reason = ARGV[10], source = ARGV[11] }
return { 1, board_substitute(2, to, ARGV[6], ARGV[7], said, now, now + ARGV[13]), ends }

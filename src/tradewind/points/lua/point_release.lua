#!lua
-- End the substitution of a point: the board shows what its device said last, `uncertain` when that is too old; without a value of the
-- device the point has none.
-- KEYS 1 points:feed 2 values of the point's hash 3 its times 4 its qualities 5 its mark 6 substitutions of the channel 7 status of the channel
-- ARGV 1 now in ms ('' = the server's clock) 2 key as it stands in the feed 3 pub/sub channel 4 single|batch|off (+points) 5 '1' in a cluster
--   6 id of the point 7 ms of the substitution that is meant ('' = any) 8 ms after which a value of the device is too old 9 id of this call
--   10 ms that a time may lie in the future
-- Returns {1, value ('' = none), quality}; {0} when there is no such substitution. A repeat after a lost reply brings the same.
-- include: board
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local to = { name = ARGV[2], channel = ARGV[3], mode = ARGV[4], is_cluster = ARGV[5] == '1', stream = KEYS[1] }
local answered = tonumber(redis.call('HGET', KEYS[7], 'last_ms') or '') or 0
local since = ARGV[7] ~= '' and ARGV[7] or nil
local value, word = board_release(2, to, ARGV[6], since, answered, tonumber(ARGV[8]), now, now + ARGV[10], ARGV[9])
if not value then return { 0 } end
return { 1, value, word }

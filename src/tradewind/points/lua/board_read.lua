#!lua
-- Read whole hashes of one channel or model, packed: a third of the replies that HGETALL gives, which is what a read costs.
-- KEYS per hash: values, times, qualities, status of the channel or of the models
-- ARGV 1 points that a hash may have at most
-- Returns {seconds, microseconds, then per hash: values as msgpack {id, value, …}, times as msgpack or one time that all have,
--   qualities as msgpack or '', ms when the channel last answered or ''}; nil when a hash has more points.
for k = 1, #KEYS, 4 do
  if redis.call('HLEN', KEYS[k]) > tonumber(ARGV[1]) then return false end
end
local now = redis.call('TIME')
local reply = { now[1], now[2] }
for k = 1, #KEYS, 4 do
  local values, times = redis.call('HGETALL', KEYS[k]), redis.call('HGETALL', KEYS[k + 1])
  local words = redis.call('HGETALL', KEYS[k + 2])
  local ms, is_one = times[2], #times == #values and #times > 0
  for i = 4, is_one and #times or 0, 2 do
    if times[i] ~= ms then is_one = false break end
  end
  reply[#reply + 1] = #values > 0 and cmsgpack.pack(values) or ''
  reply[#reply + 1] = is_one and ms or cmsgpack.pack(times)
  reply[#reply + 1] = #words > 0 and cmsgpack.pack(words) or ''
  reply[#reply + 1] = redis.call('HGET', KEYS[k + 3], 'last_ms') or ''
end
return reply

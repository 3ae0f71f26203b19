#!lua
-- Write a control value of a model and say so.
-- KEYS 1 modsrv:{model}:control 2 models:config
-- ARGV 1 model 2 field 3 value 4 source 5 now in ms ('' = the server's clock) 6 pub/sub channel
-- Returns the time written, in ms; 0: there is no such model.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return '0' end
local now = ARGV[5]
if now == '' then
  local t = redis.call('TIME')
  now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3] .. ':' .. now .. ':' .. ARGV[4])
redis.call('PUBLISH', ARGV[6], ARGV[2] .. ':' .. ARGV[3])
return now

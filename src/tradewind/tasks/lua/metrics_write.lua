#!lua flags=allow-oom
-- The leader writes the seed's figures. KEYS 1 scheduler:leader 2 scheduler:epoch 3 metrics:queue:length 4 metrics:worker:count
--   5 queue:high 6 queue:normal 7 queue:delayed 8 queue:dead 9 workers 10 queue:parked. ARGV 6 scheduler id 7 epoch. Returns {1}; {-1} not the leader.
-- Also reads: queue:parked:{priority}:{route}.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local parked = 0
for _, place in ipairs(redis.call('SMEMBERS', KEYS[10])) do
  parked = parked + redis.call('LLEN', P .. 'queue:parked:' .. place)
end
redis.call('HSET', KEYS[3], 'high', redis.call('LLEN', KEYS[5]), 'normal', redis.call('LLEN', KEYS[6]),
  'delayed', redis.call('ZCARD', KEYS[7]), 'dead', redis.call('ZCARD', KEYS[8]), 'parked', parked)
redis.call('SET', KEYS[4], redis.call('ZCOUNT', KEYS[9], NOW, '+inf'))
return { 1 }

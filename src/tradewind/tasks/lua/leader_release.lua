#!lua flags=allow-oom
-- Give the lead up, if it is ours. KEYS 1 scheduler:leader 2 scheduler:epoch. ARGV 1 scheduler id 2 epoch. Returns 1, or 0.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
return redis.call('DEL', KEYS[1])

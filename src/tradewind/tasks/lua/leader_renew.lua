#!lua flags=allow-oom
-- Stay the leader of this term. KEYS 1 scheduler:leader 2 scheduler:epoch. ARGV 1 scheduler id 2 epoch 3 TTL ms. Returns 1, or 0 when the lead is lost.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])

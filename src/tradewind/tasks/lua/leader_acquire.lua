#!lua flags=allow-oom
-- Become the leader if there is none; a new term gets a new epoch. KEYS 1 scheduler:leader 2 scheduler:epoch
-- ARGV 1 scheduler id 2 TTL ms. Returns the epoch, or 0. A lease that ends later than two from now was made before the clock was
-- set back: it ends then, unless its holder renews it.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if redis.call('PTTL', KEYS[1]) > 2 * tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[2])) end
  return 0
end
return redis.call('INCR', KEYS[2])

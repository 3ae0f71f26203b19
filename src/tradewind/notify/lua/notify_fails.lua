#!lua flags=allow-oom
-- A target that keeps failing was reported: the next delivery that works, whoever makes it, clears that.
-- KEYS 1 notify:leader 2 notify:epoch 3 notify:targets
-- ARGV 1 keeper id 2 epoch 3 target
-- Returns 1 stored; 0 another one is the keeper now.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[3], ARGV[3] .. ':failing', '1')
return 1

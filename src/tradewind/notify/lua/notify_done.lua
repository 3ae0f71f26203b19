#!lua flags=allow-oom
-- A delivery has ended: take it out and write down how.
-- KEYS 1 notify:leader 2 notify:epoch 3 notify:jobs 4 notify:due 5 notify:log 6 notify:failed 7 notify:targets
-- ARGV 1 keeper id 2 epoch 3 id of the delivery 4 target 5 sent, given_up or dropped 6 number of messages 7 attempts 8 error
--   9 now in ms 10 how many entries the log keeps 11 how many failed ids are kept
-- Returns 1 done, also when it was done before; 0 another one is the keeper now.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
if redis.call('HDEL', KEYS[3], ARGV[3]) == 0 then return 1 end
redis.call('ZREM', KEYS[4], ARGV[3])
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[10], '*', 'id', ARGV[3], 'target', ARGV[4], 'status', ARGV[5], 'count', ARGV[6],
  'attempts', ARGV[7], 'error', ARGV[8], 'at', ARGV[9])
if ARGV[5] == 'sent' then
  redis.call('HSET', KEYS[7], ARGV[4] .. ':last', ARGV[9])
  redis.call('HDEL', KEYS[7], ARGV[4] .. ':failing')
elseif ARGV[5] == 'given_up' then
  redis.call('ZADD', KEYS[6], ARGV[9], ARGV[3])
  redis.call('ZREMRANGEBYRANK', KEYS[6], 0, -tonumber(ARGV[11]) - 1)
  redis.call('HSET', KEYS[7], ARGV[4] .. ':failing', '1')
end
return 1

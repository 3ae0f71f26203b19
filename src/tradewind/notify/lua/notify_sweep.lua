#!lua flags=allow-oom
-- Forget who was told of alarms that are gone, and targets that the policy has no more.
-- KEYS 1 notify:leader 2 notify:epoch 3 notify:told 4 notify:timers 5 notify:targets, then one alarm:{id} per alarm
-- ARGV 1 keeper id 2 epoch 3 number of alarms, then their ids in the order of KEYS, then fields of notify:targets to remove
-- Returns how many alarms were forgotten; -1 another one is the keeper now.
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return -1 end
local alarms, gone = tonumber(ARGV[3]), 0
for i = 1, alarms do
  if redis.call('EXISTS', KEYS[5 + i]) == 0 then
    redis.call('HDEL', KEYS[3], ARGV[3 + i])
    redis.call('ZREM', KEYS[4], ARGV[3 + i])
    gone = gone + 1
  end
end
for i = 4 + alarms, #ARGV do redis.call('HDEL', KEYS[5], ARGV[i]) end
return gone

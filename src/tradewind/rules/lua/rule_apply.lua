#!lua
-- Carry out the next steps that rule_commit put aside. Those of a rule that was switched off or removed since are dropped.
-- KEYS 1 rulesrv:leader 2 rulesrv:epoch 3 rulesrv:states 4 rulesrv:pending
-- ARGV 1 JSON of script_context.rule_context 2 now in ms ('' = the server's clock) 3 engine id 4 epoch 5 steps to take at most
-- Returns {1, steps left}; {0} another one judges now.
-- include: alarms/alarm
-- include: rule_steps
if redis.call('GET', KEYS[1]) ~= ARGV[3] or redis.call('GET', KEYS[2]) ~= ARGV[4] then return { 0 } end
local steps = redis.call('LRANGE', KEYS[4], 0, tonumber(ARGV[5]) - 1)
local ctx = alarm_context(ARGV[1], ARGV[2])
for _, packed in ipairs(steps) do
  local step = cmsgpack.unpack(packed)
  if redis.call('HEXISTS', KEYS[3], step[2]) == 1 then rule_step(ctx, step) end
end
redis.call('LTRIM', KEYS[4], #steps, -1)
return { 1, redis.call('LLEN', KEYS[4]) }

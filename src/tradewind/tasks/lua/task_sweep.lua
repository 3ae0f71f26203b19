#!lua flags=allow-oom
-- The leader keeps the dead letters and the known types bounded. KEYS 1 scheduler:leader 2 scheduler:epoch 3 queue:dead 4 task:types
--   5 worker:types. ARGV 6 scheduler id 7 epoch 8 dead letters kept 9 ms that a type without a worker is remembered
-- Also touches: worker:type:{type}. Returns {dead letters removed, types removed}; {-1} not the leader.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local letters_gone = redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -(tonumber(ARGV[8]) + 1))
local old, HOUR = {}, 3600000
local types = redis.call('HGETALL', KEYS[4])
for i = 1, #types, 2 do
  local seen = tonumber(string.match(types[i + 1], '"seen_ms":(%d+)') or '0')
  if redis.call('EXISTS', P .. 'worker:type:' .. types[i]) == 1 then
    if now - seen > HOUR then -- the time counts from the end of its last worker
      local spec, found = string.gsub(types[i + 1], '"seen_ms":%d+', '"seen_ms":' .. NOW)
      if found == 1 then redis.call('HSET', KEYS[4], types[i], spec) end
    end
  elseif now - seen > tonumber(ARGV[9]) then
    old[#old + 1] = types[i]
  end
end
push('HDEL', KEYS[4], old)
for _, kind in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  if redis.call('EXISTS', P .. 'worker:type:' .. kind) == 0 then redis.call('SREM', KEYS[5], kind) end
end
return { letters_gone, #old }

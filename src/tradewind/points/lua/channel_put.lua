#!lua
-- Store definitions of channels; one that is what it was changes nothing.
-- KEYS 1 points:channels 2 points:channels:versions
-- ARGV 1 version that the first of them must have now ('' = any, '-' = none) 2 word for this change, then id, definition, version of each
-- Returns {1, ids that changed}; {0, version that the first has} and nothing is stored. Repeated: {1}.
local now = redis.call('HGET', KEYS[2], ARGV[3]) or '-'
if ARGV[1] ~= '' and now ~= ARGV[1] and now ~= ARGV[5] then return { 0, now } end
local changed = { 1 }
for i = 3, #ARGV, 3 do
  if redis.call('HGET', KEYS[2], ARGV[i]) ~= ARGV[i + 2] then changed[#changed + 1] = ARGV[i] end
end
for i = 3, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
end
if #changed > 1 then redis.call('HSET', KEYS[2], 'word', ARGV[2]) end
return changed

#!lua flags=allow-oom
-- Remove definitions of channels.
-- KEYS 1 points:channels 2 points:channels:versions
-- ARGV 1 version that the first of them must have now ('' = any) 2 word for this change, then ids
-- Returns {1, ids that were there}; {0, version that the first has} and nothing is removed. Repeated: {1}.
local now = redis.call('HGET', KEYS[2], ARGV[3])
if ARGV[1] ~= '' and now and now ~= ARGV[1] then return { 0, now } end
local removed = { 1 }
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then removed[#removed + 1] = ARGV[i] end
end
for i = 2, #removed do
  redis.call('HDEL', KEYS[1], removed[i])
  redis.call('HDEL', KEYS[2], removed[i])
end
if #removed > 1 then redis.call('HSET', KEYS[2], 'word', ARGV[2]) end
return removed

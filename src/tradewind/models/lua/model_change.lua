#!lua
-- Store and remove definitions of models and templates, all at once, and give notice.
-- KEYS 1 models:config 2 models:templates 3 models:states 4 models:version, then all keys with values of the models to remove
-- ARGV 1 version that the caller has looked at 2 number of models to store 3 of models to remove 4 of templates to store 5 of
--   templates to remove, then in this order: name, definition and '1' if the model is off; names; names and definitions; names
-- Returns {1, version} done, also when it was done before; {0, version} somebody else was faster, nothing is changed.
local version = redis.call('GET', KEYS[4]) or '0'
local at, changed = 6, false
local put, gone, texts, dropped = {}, {}, {}, {}
for _ = 1, tonumber(ARGV[2]) do
  put[#put + 1] = { ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1' }
  changed = changed or redis.call('HGET', KEYS[1], ARGV[at]) ~= ARGV[at + 1]
  at = at + 3
end
for _ = 1, tonumber(ARGV[3]) do
  gone[#gone + 1] = ARGV[at]
  changed = changed or redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1
  at = at + 1
end
for _ = 1, tonumber(ARGV[4]) do
  texts[#texts + 1] = { ARGV[at], ARGV[at + 1] }
  changed = changed or redis.call('HGET', KEYS[2], ARGV[at]) ~= ARGV[at + 1]
  at = at + 2
end
for _ = 1, tonumber(ARGV[5]) do
  dropped[#dropped + 1] = ARGV[at]
  changed = changed or redis.call('HEXISTS', KEYS[2], ARGV[at]) == 1
  at = at + 1
end
if not changed then return { 1, version } end
if version ~= ARGV[1] then return { 0, version } end
for _, m in ipairs(put) do
  redis.call('HSET', KEYS[1], m[1], m[2])
  -- While it is off nobody keeps up where its inputs stand.
  if m[3] then redis.call('HDEL', KEYS[3], m[1] .. ':in') end
end
for _, name in ipairs(gone) do
  redis.call('HDEL', KEYS[1], name)
  redis.call('HDEL', KEYS[3], name, name .. ':in')
end
for _, t in ipairs(texts) do redis.call('HSET', KEYS[2], t[1], t[2]) end
for _, name in ipairs(dropped) do redis.call('HDEL', KEYS[2], name) end
for k = 5, #KEYS do redis.call('UNLINK', KEYS[k]) end
-- The first number after a loss of everything is none that anybody may remember from before.
local t = redis.call('TIME')
redis.call('SET', KEYS[4], string.format('%d%03d000', t[1], math.floor(t[2] / 1000)), 'NX')
return { 1, tostring(redis.call('INCR', KEYS[4])) }

#!lua
-- Begin the journal of a release, or take over the one of an interrupted release: what was before that one stays noted.
-- KEYS 1 release:journal
-- ARGV 1 id 2 note 3 now in ms, then pairs field (`was:{kind}:{id}`), text
-- Returns how many things are noted as they were.
if redis.call('HGET', KEYS[1], 'state') == 'preparing' then redis.call('DEL', KEYS[1]) end -- it had changed nothing
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.find(field, '^step:') then redis.call('HDEL', KEYS[1], field) end
end
local is_new = redis.call('EXISTS', KEYS[1]) == 0
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'note', ARGV[2], 'beat_ms', ARGV[3], 'total', 0, 'done', 0, 'is_ready', 0)
if is_new then redis.call('HSET', KEYS[1], 'state', 'preparing', 'started_ms', ARGV[3]) end
for at = 4, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[at], ARGV[at + 1]) end
return redis.call('HLEN', KEYS[1])

#!lua
-- An operator brings tasks back that ended badly: attempts start from zero, the old outcome is dropped.
-- KEYS 1 queue:dead 2 queue:high 3 queue:normal
-- ARGV 6 a word of this call, so that its repetition after a lost reply is recognised, then ids
-- Returns per task: {1, 'QUEUED'}, {0, status} when its state forbids it, {-1} unknown.
-- include: shared
local answer = {}
for at = 7, #ARGV do
  local id = ARGV[at]
  local key = T .. id
  local f = redis.call('HMGET', key, 'status', 'pri', 'type', 'tomb', 'ddl', 're')
  local verdict = { 0, f[1] }
  if not f[1] then
    verdict = { -1 }
  elseif f[6] == ARGV[6] then
    verdict = { 1, 'QUEUED' }
  elseif TERMINAL[f[1]] and f[1] ~= 'SUCCESS' then
    local line = string.match(redis.call('GET', key .. ':body') or '{}', '^[^\n]*')
    redis.call('SET', key .. ':body', line)
    redis.call('PERSIST', key)
    redis.call('HSET', key, 'status', 'QUEUED', 'n', '0', 'stalls', '0', 'tok', '0', 're', ARGV[6])
    redis.call('HDEL', key, 'end', 'start', 'worker', 'err', 'prog', 'tomb', 'wait', 'due')
    if f[5] and tonumber(f[5]) <= now then redis.call('HDEL', key, 'ddl') end
    redis.call('DEL', P .. 'task:cancel:' .. id)
    uncache(id)
    redis.call('ZREM', KEYS[1], id)
    if not f[4] then redis.call('LPUSH', f[2] == 'high' and KEYS[2] or KEYS[3], id) end -- else its old place in the list serves
    announce('created', id, f[3])
    wake()
    verdict = { 1, 'QUEUED' }
  end
  answer[#answer + 1] = verdict
end
return answer

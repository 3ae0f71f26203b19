#!lua
-- A client asks to be told when tasks end. KEYS 1 task:token (routes the call only). ARGV 6 client id, then ids
-- Returns per task: its status when it has ended, '' when the client will be told on task:reply:{client}, '-' unknown.
-- include: shared
local answer = {}
for at = 7, #ARGV do
  local key = T .. ARGV[at]
  local f = redis.call('HMGET', key, 'status', 'wait')
  local mark = false
  local verdict = ''
  if not f[1] then
    verdict = '-'
  elseif TERMINAL[f[1]] then
    verdict = f[1]
  elseif not f[2] then
    redis.call('HSET', key, 'wait', ARGV[6], 'x', '1')
    mark = true
  elseif not string.find(',' .. f[2] .. ',', ',' .. ARGV[6] .. ',', 1, true) and #f[2] < 2000 then
    redis.call('HSET', key, 'wait', f[2] .. ',' .. ARGV[6])
  end
  if mark and f[1] == 'PROCESSING' then redis.call('SADD', P .. 'task:marked', ARGV[at]) end
  answer[#answer + 1] = verdict
end
return answer

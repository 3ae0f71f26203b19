#!lua flags=no-writes
-- What Redis thinks a worker is running, to be compared with what it runs, and which of it shall stop.
-- KEYS 1 worker:{id} 2 worker:{id}:inflight. ARGV 1 key prefix 2 generation
-- Returns {'0'} when the worker must register again, else {'1', then per task: id, token, '1' if a cancel flag stands}.
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[2] then return { '0' } end
local answer = { '1' }
local held = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #held, 2 do
  local at, id = #answer, held[i]
  answer[at + 1] = id
  answer[at + 2] = held[i + 1]
  answer[at + 3] = redis.call('EXISTS', ARGV[1] .. 'task:cancel:' .. id) == 1 and '1' or '0'
end
return answer

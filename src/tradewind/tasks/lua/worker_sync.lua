#!lua flags=no-writes
-- What Redis thinks a worker is running, to be compared with what it runs, and which of it shall stop.
-- KEYS 1 worker:{id} 2 worker:{id}:inflight. ARGV 1 key prefix 2 generation
-- Returns {'0'} when the worker must register again, else {'1', then per task: id, token, '1' if a cancel flag stands}.
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[2] then return { '0' } end
local answer = { '1' }
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local at = #answer
  answer[at + 1] = id
  answer[at + 2] = redis.call('HGET', ARGV[1] .. 'task:' .. id, 'tok') or ''
  answer[at + 3] = redis.call('EXISTS', ARGV[1] .. 'task:cancel:' .. id) == 1 and '1' or '0'
end
return answer

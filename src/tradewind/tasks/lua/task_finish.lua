#!lua flags=allow-oom
-- A worker commits how its tasks ended. A token that is not the task's newest changes nothing.
-- KEYS 1 worker:{id}:inflight 2 queue:delayed 3 queue:high 4 queue:normal 5 queue:parked
-- ARGV 6 worker id, then per task: id, token, SUCCESS|FAILED|DEAD|TIMEOUT|CANCELLED|RETRYING, outcome line, ms until the retry, short error text
-- Returns per task: 1 committed, 2 already committed by this token, 0 refused (reassigned, cancelled or gone).
-- A cancel that was asked for turns FAILED and RETRYING into CANCELLED; a success stays one.
-- include: shared
local STRIDE, FROM = 6, 7
local worker, answer, gone = ARGV[6], {}, {}
local retries = 0
for at = FROM, #ARGV, STRIDE do
  local id, token, status = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local key = P .. 'task:' .. id
  local f = redis.call('HMGET', key, 'status', 'tok', 'type', 'c', 'wait', 'lock', 'cx')
  local verdict = 0
  if f[2] == token then
    if f[1] == 'PROCESSING' then
      verdict = 1
      gone[#gone + 1] = id
      local task = { type = f[3], c = f[4], wait = f[5], lock = f[6], worker = worker }
      if f[7] or status ~= 'SUCCESS' then
        local asked = redis.call('DEL', P .. 'task:cancel:' .. id) == 1
        if asked and status ~= 'SUCCESS' then status = 'CANCELLED' end
      end
      if status == 'RETRYING' then
        local due = now + tonumber(ARGV[at + 4])
        redis.call('HSET', key, 'status', 'RETRYING', 'due', int(due), 'err', ARGV[at + 5])
        redis.call('ZADD', KEYS[2], string.format('%.3f', due / 1000), id)
        if f[4] then uncache(id) end
        if f[6] then unlock(f[6], worker) end
        count('retrying', 1)
        retries = retries + 1
        announce('retrying', id, f[3])
      else
        close(id, status, task, ARGV[at + 3])
      end
    elseif TERMINAL[f[1]] or f[1] == 'RETRYING' then
      verdict = 2
    end
  end
  answer[#answer + 1] = verdict
end
push('ZREM', KEYS[1], gone)
settle()
if retries > 0 or (#gone > 0 and (redis.call('LLEN', KEYS[4]) > 0 or redis.call('LLEN', KEYS[3]) > 0
    or redis.call('EXISTS', KEYS[5]) == 1)) then wake() end
return answer

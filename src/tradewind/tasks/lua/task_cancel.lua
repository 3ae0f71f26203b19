#!lua flags=allow-oom
-- Cancel tasks. What has not started ends now; what runs is asked to stop (flag and message to its worker).
-- KEYS 1 queue:delayed
-- ARGV 6 ms that the flag of a running task lives at least, then ids
-- Also touches: worker:{id}:queue, worker:{id}:inflight. Channel: worker:{id}:control.
-- Returns per task: {1, 'CANCELLED'} ended now, {2, 'PROCESSING'} asked to stop, {0, status} had ended before, {-1} unknown.
-- include: shared
local answer = {}
local outcome = '{"error":{"type":"Cancelled","message":"cancelled before it started"}}'
for at = 7, #ARGV do
  local id = ARGV[at]
  local key = P .. 'task:' .. id
  local f = redis.call('HMGET', key, 'status', 'type', 'worker', 'c', 'wait')
  local status, task = f[1], { type = f[2], c = f[4], wait = f[5] }
  local verdict = { 1, 'CANCELLED' }
  if not status then
    verdict = { -1 }
  elseif TERMINAL[status] then
    verdict = { 0, status }
  elseif status == 'PROCESSING' then
    local last = tonumber(redis.call('ZSCORE', P .. 'worker:' .. f[3] .. ':inflight', id) or NOW)
    redis.call('SET', P .. 'task:cancel:' .. id, '1', 'PX', int(math.max(last - now, 0) + tonumber(ARGV[6])))
    redis.call('HSET', key, 'cx', '1')
    redis.call('PUBLISH', P .. 'worker:' .. f[3] .. ':control', 'cancel:' .. id)
    verdict = { 2, status }
  else
    if status == 'QUEUED' then
      redis.call('HSET', key, 'tomb', '1') -- its id stays in the list and is dropped when it is met
    elseif status == 'ASSIGNED' then
      redis.call('LREM', P .. 'worker:' .. f[3] .. ':queue', 1, id)
    else
      redis.call('ZREM', KEYS[1], id)
    end
    close(id, 'CANCELLED', task, outcome)
  end
  answer[#answer + 1] = verdict
end
settle()
return answer

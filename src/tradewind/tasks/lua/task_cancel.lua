#!lua flags=allow-oom
-- Cancel tasks. What has not started ends now; what runs is asked to stop (flag and message to its worker).
-- KEYS 1 queue:delayed 2 task:marked
-- ARGV 6 ms that the flag of a running task outlives its attempt 7 default timeout ms, then ids
-- Also touches: worker:{id}:queue. Channel: worker:{id}:control.
-- Returns per task: {1, 'CANCELLED'} ended now, {2, 'PROCESSING'} asked to stop, {0, status} had ended before
--   (but {1, 'CANCELLED'} again for a cancelled one: the first reply may have been lost), {-1} unknown.
-- include: shared
local answer = {}
local outcome = '{"error":{"type":"Cancelled","message":"cancelled before it started"}}'
for at = 8, #ARGV do
  local id = ARGV[at]
  local key = T .. id
  local f = redis.call('HMGET', key, 'status', 'type', 'worker', 'x', 'start')
  local status = f[1]
  local verdict = { 1, 'CANCELLED' }
  if not status then
    verdict = { -1 }
  elseif TERMINAL[status] then
    verdict = { status == 'CANCELLED' and 1 or 0, status }
  elseif status == 'PROCESSING' then
    local left = tonumber(f[5] or NOW) + tonumber(rare(id, f[4]).tmo or ARGV[7]) - now
    redis.call('SET', P .. 'task:cancel:' .. id, '1', 'PX', int(math.max(left, 0) + tonumber(ARGV[6])))
    redis.call('SADD', KEYS[2], id)
    redis.call('PUBLISH', P .. 'worker:' .. f[3] .. ':control', 'cancel:' .. id)
    verdict = { 2, status }
  else
    if status == 'QUEUED' then
      redis.call('HSET', key, 'tomb', '1', 'x', '1') -- its id stays in the list and is dropped when it is met
    elseif status == 'ASSIGNED' then
      redis.call('LREM', P .. 'worker:' .. f[3] .. ':queue', 1, id)
      wake() -- its slot is free
    else
      redis.call('ZREM', KEYS[1], id)
    end
    local more = rare(id, f[4])
    close(id, 'CANCELLED', f[2], { c = more.c, wait = more.wait }, outcome)
  end
  answer[#answer + 1] = verdict
end
settle()
return answer

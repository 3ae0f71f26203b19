#!lua flags=allow-oom
-- Move a flow from one state to another.
-- KEYS 1 flow:{f} 2 flows:due 3 flow:{f}:running 4 flows:wake
-- ARGV 1 flow 2 start|pause|resume|drain|stop|delete 3 first slot ms ('' none) 4 anchor ms 5 version that the caller knows
-- Returns {1, status, running cycles…} moved; {0, status} it is there already; {-1} no such flow; {-2, status} not from there;
--   {-3} another version is registered.
local f = redis.call('HMGET', KEYS[1], 'status', 'version')
local status, verb = f[1], ARGV[2]
if not status then return { -1 } end
if (verb == 'start' or verb == 'resume') and f[2] ~= ARGV[5] then return { -3 } end
local MOVES = {
  start = { registered = 'running', stopped = 'running', completed = 'running', failed = 'running', expired = 'running' },
  resume = { paused = 'running' },
  pause = { running = 'paused' },
  drain = { running = 'draining', paused = 'draining' },
  stop = { running = 'stopped', paused = 'stopped', draining = 'stopped', registered = 'stopped', stopped = 'stopped', completed = 'stopped', failed = 'stopped' },
  delete = { registered = 'deleting', running = 'deleting', paused = 'deleting', draining = 'deleting', stopping = 'deleting', stopped = 'deleting',
    completed = 'deleting', failed = 'deleting', expired = 'deleting', deleting = 'deleting' },
}
local running = redis.call('SMEMBERS', KEYS[3])
local goal = { start = 'running', resume = 'running', pause = 'paused', drain = 'draining', stop = 'stopped', delete = 'deleting' }
local next_status = MOVES[verb][status]
if not next_status or (next_status == status and verb ~= 'delete' and #running == 0) then
  if status == goal[verb] or (verb == 'drain' and status == 'stopped') then return { 0, status } end
  return { -2, status }
end
if verb == 'stop' and (status == 'completed' or status == 'failed') and #running == 0 then return { 0, status } end
if verb == 'drain' and #running == 0 then next_status = 'stopped' end
redis.call('HSET', KEYS[1], 'status', next_status)
if next_status == 'running' then
  redis.call('HSET', KEYS[1], 'failures', '0')
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'anchor_ms', ARGV[4]) end
  if ARGV[3] ~= '' then
    redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
    redis.call('HSET', KEYS[1], 'next_execution', string.format('%.3f', tonumber(ARGV[3]) / 1000))
  end
else
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[1], 'next_execution', '0')
  redis.call('HDEL', KEYS[1], 'buffered_ms')
end
if redis.call('EXISTS', KEYS[4]) == 0 then redis.call('LPUSH', KEYS[4], '1') end
return { 1, next_status, unpack(running) }

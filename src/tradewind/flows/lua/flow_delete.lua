#!lua flags=allow-oom
-- Remove a flow that is being deleted and whose cycles have ended, some cycles a call; the flow itself last.
-- KEYS 1 flow:{f} 2 flow:{f}:cycles 3 flow:{f}:running 4 flows 5 flows:due
-- ARGV 6 flow 7 cycles a call. Also touches: flows:triggers, flows:trigger-states.
-- Returns {1} all gone, {0, cycles left}, {-1, running cycles} they must end first, {-2} it is not being deleted.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
-- include: forget
local id = ARGV[6]
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return { 1 } end
if status ~= 'deleting' then return { -2 } end
local running = redis.call('SCARD', KEYS[3])
if running > 0 then return { -1, running } end
for _, n in ipairs(redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[7]) - 1)) do forget(id, n, nil) end
local left = redis.call('ZCARD', KEYS[2])
if left > 0 then return { 0, left } end
local version = redis.call('HGET', KEYS[1], 'version')
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], F .. id .. ':plan:' .. version)
redis.call('ZREM', KEYS[4], id)
if redis.call('HDEL', P .. 'flows:triggers', id) == 1 then
  for at = 0, 99 do redis.call('HDEL', P .. 'flows:trigger-states', id .. ' ' .. at) end
end
redis.call('ZREM', KEYS[5], id)
record('{"k":"gone","flow":"' .. id .. '"}')
flush_records()
return { 1 }

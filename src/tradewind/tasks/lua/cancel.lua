-- Shared by the scripts that cancel. Keys built: worker:{id}:queue, queue:delayed, task:cancel:{id}, task:marked.
-- Channel: worker:{id}:control.

-- End a task that has not started, ask a running one to stop. flag_ms: how long the flag of a running task outlives its
-- attempt; is_ours: the caller settles the room that the hook names. Returns 1 ended now, 2 asked to stop, 0 had ended
-- before, -1 unknown; and the status.
local function cancel(id, flag_ms, default_ms, is_ours)
  local key = T .. id
  local f = fields(key, 'status', 'type', 'worker', 'x', 'start')
  local status = f[1]
  if not status then return -1 end
  if TERMINAL[status] then return status == 'CANCELLED' and 1 or 0, status end
  local more = rare(id, f[4])
  if status == 'PROCESSING' then
    local left = tonumber(numeric(f[5]) or NOW) + tonumber(more.tmo or default_ms) - now
    redis.call('SET', P .. 'task:cancel:' .. id, '1', 'PX', int(math.max(left, 0) + flag_ms))
    redis.call('SADD', P .. 'task:marked', id)
    redis.call('PUBLISH', P .. 'worker:' .. (f[3] or '') .. ':control', 'cancel:' .. id)
    return 2, status
  end
  if status == 'QUEUED' then
    redis.call('HSET', key, 'tomb', '1', 'x', '1') -- its id stays in the list and is dropped when it is met
  elseif status == 'ASSIGNED' then
    redis.call('LREM', P .. 'worker:' .. (f[3] or '') .. ':queue', 1, id)
    wake() -- its slot is free
  else
    redis.call('ZREM', P .. 'queue:delayed', id)
  end
  close(id, 'CANCELLED', f[2], { c = more.c, wait = more.wait, hook = not is_ours and more.hook or nil },
    '{"error":{"type":"Cancelled","message":"cancelled before it started"}}')
  return 1, 'CANCELLED'
end

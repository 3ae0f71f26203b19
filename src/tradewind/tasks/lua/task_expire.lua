#!lua flags=allow-oom
-- The leader ends tasks whose deadline has passed before they started; one that runs is ended by its worker or by task_reap.
-- KEYS 1 scheduler:leader 2 scheduler:epoch 3 task:deadlines 4 queue:delayed
-- ARGV 6 scheduler id 7 epoch 8 limit
-- Also touches: worker:{id}:queue. Returns {looked at, ended}; {-1} not the leader.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local ids = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', NOW, 'LIMIT', 0, ARGV[8])
for _, id in ipairs(ids) do
  local key = T .. id
  local f = fields(key, 'status', 'type', 'ddl', 'worker', 'c', 'wait', 'hook')
  local status = f[1]
  if status and numeric(f[3]) and tonumber(f[3]) <= now and not TERMINAL[status] and status ~= 'PROCESSING' then
    if status == 'QUEUED' then
      redis.call('HSET', key, 'tomb', '1', 'x', '1') -- its id stays in the list and is dropped when it is met
    elseif status == 'ASSIGNED' then
      redis.call('LREM', P .. 'worker:' .. (f[4] or '') .. ':queue', 1, id)
      wake()
    else
      redis.call('ZREM', KEYS[4], id)
    end
    close(id, 'TIMEOUT', f[2], { c = f[5], wait = f[6], hook = f[7] },
      '{"error":{"type":"DeadlineExceeded","message":"its deadline passed before it started"}}')
  end
end
push('ZREM', KEYS[3], ids)
local n = #ended
settle()
return { #ids, n }

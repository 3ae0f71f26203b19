#!lua flags=allow-oom
-- The leader ends attempts that ran past their time although their worker lives (its loop hangs, or it forgot them).
-- KEYS 1 scheduler:leader 2 scheduler:epoch 3 worker:{id}:inflight 4 queue:delayed
-- ARGV 6 scheduler id 7 epoch 8 worker id 9 ms of grace past the attempt's end 10 limit
-- Returns {ended}; {-1} not the leader.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local worker = ARGV[8]
local ids = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', int(now - tonumber(ARGV[9])), 'LIMIT', 0, ARGV[10])
local n = 0
for _, id in ipairs(ids) do
  local key = P .. 'task:' .. id
  local f = redis.call('HMGET', key, 'status', 'worker', 'type', 'c', 'wait', 'lock', 'n', 'stalls', 'max', 'ddl')
  if f[1] == 'PROCESSING' and f[2] == worker then
    n = n + 1
    local used = tonumber(f[7] or '1') - tonumber(f[8] or '0')
    redis.call('PUBLISH', P .. 'worker:' .. worker .. ':control', 'cancel:' .. id)
    if used < tonumber(f[9] or '1') and not (f[10] and tonumber(f[10]) <= now + 1000) then
      redis.call('HSET', key, 'status', 'RETRYING', 'tok', '0', 'due', int(now + 1000), 'err', 'timed out; its worker did not stop it')
      redis.call('ZADD', KEYS[4], string.format('%.3f', (now + 1000) / 1000), id)
      if f[4] then uncache(id) end
      count('retrying', 1)
      announce('retrying', id, f[3])
    else
      redis.call('HSET', key, 'tok', '0')
      close(id, 'TIMEOUT', { type = f[3], c = f[4], wait = f[5] },
        '{"error":{"type":"Timeout","message":"timed out; its worker did not stop it"}}')
    end
  end
end
push('ZREM', KEYS[3], ids)
settle()
return { n }

#!lua flags=allow-oom
-- The leader ends attempts that ran past their time although their worker lives (its loop hangs, or it forgot them).
-- KEYS 1 scheduler:leader 2 scheduler:epoch 3 worker:{id}:inflight 4 queue:delayed
-- ARGV 6 scheduler id 7 epoch 8 worker id 9 ms of grace past the attempt's end 10 limit 11 default timeout ms
-- Returns {ended}; {-1} not the leader.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local worker, limit, grace = ARGV[8], tonumber(ARGV[10]), tonumber(ARGV[9])
local gone = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  local key = T .. id
  local f = fields(key, 'start', 'tmo', 'ddl')
  local last = tonumber(numeric(f[1]) or '0') + tonumber(numeric(f[2]) or ARGV[11])
  if numeric(f[3]) and tonumber(f[3]) < last then last = tonumber(f[3]) end
  if last + grace <= now and #gone < limit then
    gone[#gone + 1] = id
    f = fields(key, 'status', 'worker', 'type', 'c', 'wait', 'n', 'stalls', 'max', 'ddl', 'lock', 'hook')
    if f[1] == 'PROCESSING' and f[2] == worker then
      local used = tonumber(numeric(f[6]) or '1') - tonumber(numeric(f[7]) or '0')
      redis.call('PUBLISH', P .. 'worker:' .. worker .. ':control', 'cancel:' .. id)
      redis.call('HSET', key, 'tok', '0')
      if f[10] then unlock(f[10], worker) end
      if redis.call('DEL', P .. 'task:cancel:' .. id) == 1 then
        close(id, 'CANCELLED', f[3], { c = f[4], wait = f[5], hook = f[11] },
          '{"error":{"type":"Cancelled","message":"cancelled; its worker did not stop it"}}')
      elseif used < tonumber(numeric(f[8]) or '1') and not (numeric(f[9]) and tonumber(f[9]) <= now + 1000) then
        redis.call('HSET', key, 'status', 'RETRYING', 'due', int(now + 1000), 'x', '1', 'err',
          'timed out; its worker did not stop it')
        redis.call('ZADD', KEYS[4], string.format('%.3f', (now + 1000) / 1000), id)
        if f[4] then uncache(id) end
        count('retrying', 1)
        announce('retrying', id, f[3])
      else
        close(id, 'TIMEOUT', f[3], { c = f[4], wait = f[5], hook = f[11] },
          '{"error":{"type":"Timeout","message":"timed out; its worker did not stop it"}}')
      end
    end
  end
end
push('ZREM', KEYS[3], gone)
settle()
if #gone > 0 then wake() end
return { #gone }

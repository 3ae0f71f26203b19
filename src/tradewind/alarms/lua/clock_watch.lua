#!lua flags=allow-oom
-- Notice that the server's clock was set back, and move what was to last for a while: timers of alarms (not their retention), open
-- commands, retries of tasks, leases of workers. What goes by the time of the day (slots of schedules, `eta`) stays.
-- KEYS 1 station:clock 2 alarm:timers 3 cmd:open 4 queue:delayed 5 workers
-- ARGV 1 key prefix 2 now in ms ('' = the server's clock) 3 ms by which it may seem to go back 4 how many of each are moved at most
-- Keys built: cmd:{id}, task:{id}. Returns {ms by which it was set back if that was not told yet (0 = not), ms when it was noticed}.
local P, now = ARGV[1], tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local function int(n) return string.format('%.0f', n) end
local had = redis.call('HMGET', KEYS[1], 'high_ms', 'by_ms', 'at_ms', 'told')
local high = tonumber(had[1] or '') or now
if now >= high - tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], 'high_ms', int(math.max(now, high)))
  if had[4] == '0' then return { tonumber(had[2]), tonumber(had[3]) } end
  return { 0, 0 }
end
local by, most = high - now, tonumber(ARGV[4])
local function ahead(key, from) return redis.call('ZRANGE', key, '(' .. from, '+inf', 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES') end
local timers, commands, delayed = ahead(KEYS[2], int(now)), ahead(KEYS[3], int(now)), ahead(KEYS[4], string.format('%.3f', now / 1000))
for i = 1, #timers, 2 do
  if not string.find(timers[i], '^close:') then
    redis.call('ZADD', KEYS[2], int(math.max(now, tonumber(timers[i + 1]) - by)), timers[i])
  end
end
for i = 1, #commands, 2 do
  local ends = int(math.max(now, tonumber(commands[i + 1]) - by))
  redis.call('ZADD', KEYS[3], ends, commands[i])
  local expires = tonumber(redis.pcall('HGET', P .. 'cmd:' .. commands[i], 'expires_ms') or '')
  if expires and expires > now then redis.call('HSET', P .. 'cmd:' .. commands[i], 'expires_ms', int(math.max(now, expires - by))) end
end
local workers = ahead(KEYS[5], int(now))
for i = 1, #workers, 2 do
  redis.call('ZADD', KEYS[5], int(math.max(now, tonumber(workers[i + 1]) - by)), workers[i])
end
for i = 1, #delayed, 2 do
  local key = P .. 'task:' .. delayed[i]
  if redis.pcall('HGET', key, 'status') == 'RETRYING' then
    local due = math.max(now, tonumber(delayed[i + 1]) * 1000 - by)
    redis.call('ZADD', KEYS[4], string.format('%.3f', due / 1000), delayed[i])
    redis.call('HSET', key, 'due', int(due))
  end
end
redis.call('HSET', KEYS[1], 'high_ms', int(now), 'by_ms', int(by), 'at_ms', int(now), 'told', '0')
return { by, now }

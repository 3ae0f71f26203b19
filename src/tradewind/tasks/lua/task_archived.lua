#!lua flags=allow-oom
-- The archiver says that SQL has these ended tasks: the outbox entries go, the records expire.
-- KEYS 1 task:outbox 2 task:outbox:count. ARGV 1 key prefix 2 ms that a record lives on 3 number of entries, then entry ids,
--   then pairs task id, end time as read (a task that was brought back meanwhile is left alone)
-- Returns how many entries were removed. Repeating it changes nothing.
local entries, removed, tasks = tonumber(ARGV[3]), 0, 0
for at = 4, 3 + entries do
  local entry = redis.call('XRANGE', KEYS[1], ARGV[at], ARGV[at])[1]
  if entry then
    local _, spaces = string.gsub(entry[2][2], ' ', '')
    tasks = tasks + spaces + 1
    removed = removed + redis.call('XDEL', KEYS[1], ARGV[at])
  end
end
if tasks > 0 and redis.call('DECRBY', KEYS[2], tasks) < 0 then redis.call('SET', KEYS[2], '0') end
for at = 4 + entries, #ARGV, 2 do
  local key = ARGV[1] .. 'task:' .. ARGV[at]
  if redis.call('HGET', key, 'end') == ARGV[at + 1] then
    redis.call('PEXPIRE', key, ARGV[2])
    redis.call('PEXPIRE', key .. ':body', ARGV[2])
  end
end
return removed

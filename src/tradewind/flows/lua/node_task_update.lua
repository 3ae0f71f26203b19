#!lua flags=allow-oom
-- Move a node task on: compare and set, record and state in one. KEYS 1 node_tasks:{id} 2 trading_flow:node:{id}
-- ARGV 3 status 4 states that may become it, between spaces 5 error message 6 ms that it lives
--   7 worker id ('' any) 8 '1' when there must be a record, then pairs: member of the record, its JSON
-- Returns 1 when it has that status now, also when it had; 0 when that is not allowed; -1 without a record.
-- include: node_task_shared
local text = redis.call('GET', KEYS[1])
if not text and ARGV[8] == '1' then return -1 end
local record = text and members(text)
if ARGV[7] ~= '' and word(record, 'worker_id') ~= ARGV[7] then return 0 end
local old = status_of(KEYS[2], record)
if old and not has(ARGV[4], old) then return old == ARGV[3] and 1 or 0 end
if record then
  for at = 9, #ARGV, 2 do put(record, ARGV[at], ARGV[at + 1]) end
end
write(KEYS[1], KEYS[2], record, ARGV[3], ARGV[5], ARGV[6])
return 1

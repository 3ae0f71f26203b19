#!lua
-- A worker takes a node task on. KEYS 1 node_tasks:{id} 2 trading_flow:node:{id} 3 node_tasks_list 4 worker_tasks:{worker}
-- ARGV 3 the record as JSON, without times 4 id 5 worker id 6 in-flight states between spaces 7 ms that it lives
-- Also touches: worker_tasks:{worker that had it}.
-- Returns {1, record}; {0, status} when it has ended; {-1} when the id is that of another flow, cycle or node.
-- Repeated by the same worker it only renews the task.
-- include: node_task_shared
-- Strangers may write the cycle as a string.
local function bare(of, name) return (string.gsub(of.raw[name] or '', '"', '')) end
local wanted = members(ARGV[3])
local text = redis.call('GET', KEYS[1])
local record = text and members(text)
local status = status_of(KEYS[2], record)
if record then
  for _, name in ipairs({ 'flow_id', 'cycle', 'node_id' }) do
    if bare(record, name) ~= bare(wanted, name) then return { -1 } end
  end
end
if status and not has(ARGV[6], status) then return { 0, status } end
local before = word(record, 'worker_id')
if status == 'running' and before and before ~= ARGV[5] then status = 'pending' end
if record then
  for _, name in ipairs({ 'node_type', 'worker_id', 'config' }) do put(record, name, wanted.raw[name]) end
else
  record = wanted
  put(record, 'registered_at', '"' .. iso(now) .. '"')
end
local error_message = redis.call('HGET', KEYS[2], 'error_message') or ''
if before and before ~= '' and before ~= ARGV[5] then redis.call('SREM', P .. 'worker_tasks:' .. before, ARGV[4]) end
write(KEYS[1], KEYS[2], record, status or 'registered', error_message, ARGV[7])
redis.call('SADD', KEYS[3], ARGV[4])
redis.call('SADD', KEYS[4], ARGV[4])
return { 1, text_of(record) }

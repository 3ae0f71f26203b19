#!lua flags=allow-oom
-- Drop ids of node tasks that are gone from a set. KEYS 1 node_tasks_list or worker_tasks:{worker}
-- ARGV 1 key prefix, then at most 1000 ids. Also reads: node_tasks:{id}. Returns how many were dropped.
local P = ARGV[1]
local gone = {}
for at = 2, #ARGV do
  if redis.call('EXISTS', P .. 'node_tasks:' .. ARGV[at]) == 0 then gone[#gone + 1] = ARGV[at] end
end
if #gone == 0 then return 0 end
return redis.call('SREM', KEYS[1], unpack(gone))

#!lua flags=allow-oom
-- Ask a node to stop. KEYS 1 node_tasks:{id} 2 trading_flow:node:{id} 3 trading_flow:node:{id}:terminate
-- ARGV 3 in-flight states between spaces 4 reason as JSON 5 ms that the flag lives. Returns 1; 0 when the node has ended.
-- include: node_task_shared
local text = redis.call('GET', KEYS[1])
local status = status_of(KEYS[2], text and members(text))
if status and not has(ARGV[3], status) then return 0 end
redis.call('SET', KEYS[3], '{"reason":' .. ARGV[4] .. ',"timestamp":"' .. iso(now) .. '"}', 'PX', ARGV[5])
return 1

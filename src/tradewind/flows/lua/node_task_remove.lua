#!lua flags=allow-oom
-- Forget a node task. KEYS 1 node_tasks:{id} 2 trading_flow:node:{id} 3 trading_flow:node:{id}:terminate 4 node_tasks_list
-- ARGV 3 id. Also touches: worker_tasks:{worker that had it}. Returns 1; 0 when there was neither record nor state.
-- include: node_task_shared
local text = redis.call('GET', KEYS[1])
local worker = word(text and members(text), 'worker_id')
local found = redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('UNLINK', KEYS[3])
redis.call('SREM', KEYS[4], ARGV[3])
if worker and worker ~= '' then redis.call('SREM', P .. 'worker_tasks:' .. worker, ARGV[3]) end
return found > 0 and 1 or 0

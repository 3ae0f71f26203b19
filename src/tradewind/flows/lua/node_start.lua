#!lua flags=allow-oom
-- A worker that took a node from its queue starts it: the node's records say so, its inputs are handed out.
-- KEYS 1 flow:{f}:cycle:{n}
-- ARGV 6 worker id 7 flow 8 cycle 9 node 10 token
-- Returns {plan version, inputs as HGETALL}; {} when the node has ended, the cycle has gone or the attempt is not this one.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
local c, id = cycle_of(ARGV[7], ARGV[8]), ARGV[9]
if not c or c.status ~= 'running' or redis.call('HEXISTS', c.key .. ':done', id) == 1 then return {} end
local tid, node = task_of(c, id), node_of(c, id)
if redis.call('HGET', T .. tid, 'tok') ~= ARGV[10] or not node then return {} end
show(c, id, node, 'running', ARGV[6], 'Executing node', '0')
redis.call('SADD', P .. 'worker_tasks:' .. ARGV[6], tid)
redis.call('EXPIRE', P .. 'worker_tasks:' .. ARGV[6], WEEK)
tell('node_running', c, id, 'running')
return { c.version, redis.call('HGETALL', c.key .. ':in:' .. id) }

#!lua flags=allow-oom
-- A worker that took nodes from its queue starts them: their records say so, their inputs are handed out.
-- KEYS 1 worker_tasks:{worker}
-- ARGV 6 worker id, then per node: flow, cycle, node, token
-- Returns per node {plan version, inputs as HGETALL}; {} when the node has ended, the cycle has gone or the attempt is not this one.
-- include: tasks/shared
-- include: tasks/cancel
-- include: cycle
local answer, tids, ahead = {}, {}, {}
for at = 7, #ARGV, 4 do
  local c = cycle_of(ARGV[at], ARGV[at + 1])
  if c then
    ahead[c] = ahead[c] or {}
    table.insert(ahead[c], ARGV[at + 2])
  end
end
for c, nodes in pairs(ahead) do foresee(c, nodes) end
for at = 7, #ARGV, 4 do
  local c, id = cycle_of(ARGV[at], ARGV[at + 1]), ARGV[at + 2]
  local node = c and c.status == 'running' and node_of(c, id)
  local found = {}
  if node and redis.call('HEXISTS', c.key .. ':done', id) == 0 then
    local tid = task_of(c, id)
    if redis.call('HGET', T .. tid, 'tok') == ARGV[at + 3] then
      show(c, id, node, 'running', ARGV[6], 'Executing node', '0')
      tids[#tids + 1] = tid
      tell('node_running', c, id, 'running')
      found = { c.version, redis.call('HGETALL', c.key .. ':in:' .. id) }
    end
  end
  answer[#answer + 1] = found
end
push('SADD', KEYS[1], tids)
if #tids > 0 then redis.call('EXPIRE', KEYS[1], WEEK) end
return answer

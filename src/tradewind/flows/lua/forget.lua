-- Shared by the scripts that remove cycles. Keys built: all of flow:{f}:cycle:{n}*, the node keys of its nodes, node_tasks_list,
-- worker_tasks:{w}, flow:{f}:cycles, flows:unsent, flow:{f}:plan:{version} when no kept cycle has that version.

-- Remove everything of an ended cycle except its tasks, which the task room ends and forgets by itself.
local function forget(flow, n, current)
  local key = F .. flow .. ':cycle:' .. n
  local version = redis.call('HGET', key, 'version')
  local ids, workers = {}, {}
  local lines = redis.call('HGETALL', key .. ':done')
  for i = 1, #lines, 2 do
    local w = string.match(lines[i + 1], '^%S+ %S+ %S+ (%S*) ')
    if w and w ~= '' then
      workers[w] = workers[w] or {}
      table.insert(workers[w], flow .. '_' .. n .. '_' .. lines[i])
    end
  end
  local gone = { key, key .. ':nodes', key .. ':done', key .. ':unsent', key .. ':sent', key .. ':out' }
  for _, node in ipairs(redis.call('SMEMBERS', key .. ':nodes')) do
    local tid = flow .. '_' .. n .. '_' .. node
    ids[#ids + 1] = tid
    gone[#gone + 1] = key .. ':in:' .. node
    gone[#gone + 1] = P .. 'node_tasks:' .. tid
    gone[#gone + 1] = P .. 'trading_flow:node:' .. tid
    gone[#gone + 1] = P .. 'trading_flow:node:' .. tid .. ':terminate'
  end
  local packed = version and redis.call('HGET', F .. flow .. ':plan:' .. version, ':components')
  for k = 0, (packed and tonumber(packed) or 1) - 1 do gone[#gone + 1] = key .. ':component:' .. k .. ':stop' end
  for from = 1, #gone, 1000 do redis.call('UNLINK', unpack(gone, from, math.min(from + 999, #gone))) end
  push('SREM', P .. 'node_tasks_list', ids)
  for w, tids in pairs(workers) do push('SREM', P .. 'worker_tasks:' .. w, tids) end
  redis.call('ZREM', F .. flow .. ':cycles', n)
  redis.call('ZREM', P .. 'flows:unsent', flow .. ':' .. n)
  if version and version ~= current then
    for _, other in ipairs(redis.call('ZRANGE', F .. flow .. ':cycles', 0, -1)) do
      if redis.call('HGET', F .. flow .. ':cycle:' .. other, 'version') == version then return end
    end
    redis.call('UNLINK', F .. flow .. ':plan:' .. version)
  end
end

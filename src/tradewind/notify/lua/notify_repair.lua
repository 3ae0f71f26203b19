#!lua
-- Compare the indexes of deliveries and escalations with the records, and bring them back to what these say.
-- KEYS 1 notify:jobs
-- ARGV 1 key prefix 2 mode 3 number of entries of indexes, per entry the key without the prefix, the member or field, its value
-- Keys built here: notify:due, notify:told, notify:timers, notify:policy, alarm:{id}. Returns what redis/repair.lua says.
-- include: redis/repair
local N = ARGV[1] .. 'notify:'
local UNANSWERED = { New = true, Escalated = true }
local function decoded(text)
  local is_json, found = pcall(cjson.decode, text or '')
  return is_json and type(found) == 'table' and found or nil
end
local escalation
-- When the next step of an alarm's chain is due; nil when it has none.
local function step_of(id, told)
  local step = tonumber(told.step) or -1
  local f = redis.pcall('HMGET', ARGV[1] .. 'alarm:' .. id, 'status', 'acknowledged_at')
  if step < 0 or f.err or not UNANSWERED[f[1]] or (f[2] or '') ~= '' then return nil end
  if not escalation then escalation = (decoded(redis.call('GET', N .. 'policy')) or {}).escalation or {} end
  local after = type(escalation[step + 1]) == 'table' and tonumber(escalation[step + 1].after_s)
  return after and (tonumber(told.since) or 0) + after * 1000
end

local at = 4
for _ = 1, tonumber(ARGV[3]) do
  local name, member, value = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local key = ARGV[1] .. name
  at = at + 3
  if member == '' and value == '#' then
    key = nil
  elseif name == 'notify:jobs' then
    local job = decoded(value)
    if not (job and tonumber(job.due_ms) and job.id == member and type(job.target) == 'string') then
      wrong('d', key, 'has a delivery ' .. member .. ' that cannot be read: it is not sent', { 'HDEL', key, member })
    elseif redis.call('HGET', key, member) == value and not redis.call('ZSCORE', N .. 'due', member) then
      wrong('m', N .. 'due', 'misses delivery ' .. member, { 'ZADD', N .. 'due', string.format('%.0f', job.due_ms), member })
    end
  elseif name == 'notify:due' then
    if redis.call('HEXISTS', KEYS[1], member) == 0 then
      wrong('m', key, 'names delivery ' .. member .. ' which has no record', { 'ZREM', key, member })
    end
  elseif name == 'notify:told' then
    local told = decoded(value)
    if not told then
      wrong('d', key, 'has a record of alarm ' .. member .. ' that cannot be read: as if nobody had been told of it', { 'HDEL', key, member })
    elseif redis.call('HGET', key, member) == value and not redis.call('ZSCORE', N .. 'timers', member) then
      local due = step_of(member, told)
      if due then wrong('m', N .. 'timers', 'misses alarm ' .. member, { 'ZADD', N .. 'timers', string.format('%.0f', due), member }) end
    end
  elseif name == 'notify:timers' then
    if redis.call('HEXISTS', N .. 'told', member) == 0 then
      wrong('m', key, 'names alarm ' .. member .. ' of which nobody was told', { 'ZREM', key, member })
    end
  end
end
return finish(ARGV[2])

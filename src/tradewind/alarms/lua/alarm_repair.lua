#!lua
-- Compare indexes of alarms with the records, and bring them back to what these say.
-- KEYS 1 alarm:open
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock) 3 mode 4 number of entries of indexes, per entry the key without the
--   prefix, the member or field, its value; then names of records
-- Keys built here: those that alarm.lua names. Returns what redis/repair.lua says.
-- include: alarms/alarm
-- include: redis/repair
local ctx = alarm_context(ARGV[1], ARGV[2])
local P = ctx.prefix
local A = P .. 'alarm:'
local known = {}
local function record(id)
  if known[id] == nil then
    local h = redis.call('TYPE', A .. id).ok == 'hash' and alarm_read(ctx, id) or nil
    known[id] = h and { h = h, places = alarm_places(ctx, h) } or false
  end
  return known[id]
end
local function has(list, key)
  for _, name in ipairs(list) do if name == key then return true end end
  return false
end
local function int(n) return string.format('%.0f', n) end

local at = 5
for _ = 1, tonumber(ARGV[4]) do
  local key, member, value = P .. ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  if value ~= '#' or member ~= '' then
    local id = key == A .. 'open' and value or string.match(member, '[^:]*$')
    local r = record(id)
    local what = r and 'has alarm ' .. id .. ' which does not belong there' or 'names alarm ' .. id .. ' which has no record'
    if key == A .. 'realtime' then
      if not (r and r.places.is_open and r.places.realtime_field == member) then wrong('m', key, what, { 'HDEL', key, member }) end
    elseif key == A .. 'open' then
      -- The slot may have been given to another one since it was looked at.
      local is_so = r and r.places.is_open and r.places.slot == member
      if not is_so and redis.call('HGET', key, member) == id then wrong('m', key, what, { 'HDEL', key, member }) end
    elseif key == A .. 'timers' then
      if not (r and r.places.timers[member]) and not string.find(member, '^release:') then
        wrong('m', key, what, { 'ZREM', key, member })
      end
    elseif string.find(key, A .. 'buckets:', 1, true) == 1 then
      if not (r and r.places.bucket == key) then wrong('m', key, what, { 'HDEL', key, member }) end
    elseif string.find(key, A .. 'order:', 1, true) == 1 then
      if not (r and has(r.places.orders, key)) then wrong('m', key, what, { 'ZREM', key, member }) end
    elseif not (r and has(r.places.sets, key)) then
      wrong('m', key, what, { 'SREM', key, member })
    end
  end
end
-- Two are open where one may be: nobody would ever clear the one that the slot does not name.
local function is_second(r)
  local holder = r.places.is_open and redis.call('HGET', KEYS[1], r.places.slot)
  local other = holder and holder ~= r.h.id and record(holder)
  return other and other.places.is_open and other.places.slot == r.places.slot
end
local function look(r)
  local id, places = r.h.id, r.places
  local misses = 'misses alarm ' .. id
  for _, key in ipairs(places.sets) do
    if redis.call('SISMEMBER', key, id) == 0 then wrong('m', key, misses, { 'SADD', key, id }) end
  end
  for _, key in ipairs(places.orders) do
    if tonumber(redis.call('ZSCORE', key, id) or '') ~= tonumber(r.h.first_seen) then
      wrong('m', key, misses, { 'ZADD', key, r.h.first_seen, id })
    end
  end
  if redis.call('HGET', places.bucket, id) ~= places.compact then
    wrong('m', places.bucket, misses, { 'HSET', places.bucket, id, places.compact })
  end
  for member, ms in pairs(places.timers) do
    if tonumber(redis.call('ZSCORE', A .. 'timers', member) or '') ~= ms then
      wrong('m', A .. 'timers', 'misses ' .. member, { 'ZADD', A .. 'timers', int(ms), member })
    end
  end
  if not places.is_open then return end
  if redis.call('HGET', A .. 'realtime', places.realtime_field) ~= places.realtime then
    wrong('m', A .. 'realtime', misses, { 'HSET', A .. 'realtime', places.realtime_field, places.realtime })
  end
  if redis.call('HEXISTS', KEYS[1], places.slot) == 0 then
    wrong('m', KEYS[1], misses, { 'HSETNX', KEYS[1], places.slot, id })
  end
  if r.h.cause and not record(r.h.cause) and not redis.call('ZSCORE', A .. 'timers', 'release:' .. r.h.cause) then
    wrong('m', A .. 'timers', 'misses the release of ' .. id .. ', whose cause has gone',
      { 'ZADD', A .. 'timers', 'NX', int(ctx.now), 'release:' .. r.h.cause })
  end
end
for n = at, #ARGV do
  local id = string.match(ARGV[n], '[^:]*$')
  local r = record(id)
  if not r then
    if redis.call('EXISTS', A .. id) == 1 then wrong('n', A .. id, 'is only a part of an alarm: no index and no list has it') end
  elseif is_second(r) then
    wrong('m', KEYS[1], 'has another open alarm of the rule and the source of ' .. id .. ', which is resolved therefore', function()
      alarm_move(ctx, r.h, 'Resolved', 'resolved', '', 'another one of its rule and source is open', { resolved_at = alarm_iso(ctx.now) })
    end)
  else
    look(r)
  end
end
return finish(ARGV[3])

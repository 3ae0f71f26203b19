#!lua
-- Bring indexes back to what the records say, when somebody deleted keys by hand or a server lost some.
-- KEYS 1 alarm:open
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock) 3 number of entries of indexes, per entry the key without the prefix,
--   the member or field, the id that it speaks of; then ids of records
-- Returns how many entries were wrong or missing.
-- include: alarm
local ctx = alarm_context(ARGV[1], ARGV[2])
local P, wrong = ctx.prefix, 0
local A = P .. 'alarm:'
local known = {}
local function record(id)
  if known[id] == nil then
    local h = alarm_read(ctx, id)
    known[id] = h and { h = h, places = alarm_places(ctx, h) } or false
  end
  return known[id]
end
local function has(list, key)
  for _, name in ipairs(list) do if name == key then return true end end
  return false
end
local function repair(changed) wrong = wrong + (changed == 1 and 1 or 0) end

local at = 4
for _ = 1, tonumber(ARGV[3]) do
  local key, member, id, r = P .. ARGV[at], ARGV[at + 1], ARGV[at + 2], record(ARGV[at + 2])
  at = at + 3
  if key == A .. 'realtime' then
    if not (r and r.places.is_open and r.places.realtime_field == member) then repair(redis.call('HDEL', key, member)) end
  elseif key == A .. 'open' then
    -- The slot may have been given to another one since it was looked at.
    local is_so = r and r.places.is_open and r.places.slot == member
    if not is_so and redis.call('HGET', key, member) == id then repair(redis.call('HDEL', key, member)) end
  elseif key == A .. 'timers' then
    if not (r and r.places.timers[member]) and not string.find(member, '^release:') then repair(redis.call('ZREM', key, member)) end
  elseif string.find(key, A .. 'buckets:', 1, true) == 1 then
    if not (r and r.places.bucket == key) then repair(redis.call('HDEL', key, member)) end
  elseif string.find(key, A .. 'order:', 1, true) == 1 then
    if not (r and has(r.places.orders, key)) then repair(redis.call('ZREM', key, member)) end
  elseif not (r and has(r.places.sets, key)) then
    repair(redis.call('SREM', key, member))
  end
end
-- Two are open where one may be: nobody would ever clear the one that the slot does not name.
local function is_second(r)
  local holder = r.places.is_open and redis.call('HGET', KEYS[1], r.places.slot)
  local other = holder and holder ~= r.h.id and record(holder)
  return other and other.places.is_open and other.places.slot == r.places.slot
end
for n = at, #ARGV do
  local r = record(ARGV[n])
  if r and is_second(r) then
    alarm_move(ctx, r.h, 'Resolved', 'resolved', '', 'another one of its rule and source is open',
      { resolved_at = alarm_iso(ctx.now) })
    known[ARGV[n]] = nil
    r = record(ARGV[n])
    wrong = wrong + 1
  end
  if r then
    local id, places = r.h.id, r.places
    for _, key in ipairs(places.sets) do repair(redis.call('SADD', key, id)) end
    for _, key in ipairs(places.orders) do repair(redis.call('ZADD', key, r.h.first_seen, id)) end
    if redis.call('HGET', places.bucket, id) ~= places.compact then
      redis.call('HSET', places.bucket, id, places.compact)
      wrong = wrong + 1
    end
    if places.is_open then
      if redis.call('HGET', A .. 'realtime', places.realtime_field) ~= places.realtime then
        redis.call('HSET', A .. 'realtime', places.realtime_field, places.realtime)
        wrong = wrong + 1
      end
      repair(redis.call('HSETNX', KEYS[1], places.slot, id))
      -- Its cause went without letting it go.
      if r.h.cause and not record(r.h.cause) then redis.call('ZADD', A .. 'timers', 'NX', string.format('%.0f', ctx.now), 'release:' .. r.h.cause) end
    end
    for member, ms in pairs(places.timers) do repair(redis.call('ZADD', A .. 'timers', string.format('%.0f', ms), member)) end
  end
end
return wrong

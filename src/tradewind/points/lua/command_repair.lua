#!lua
-- Compare the indexes of channels and commands with the records, and bring them back to what these say.
-- KEYS 1 cmd:open
-- ARGV 4 ms that an execution may overrun its timeout 5 a new word for changed channels 6 mode 7 number of entries of indexes, per
--   entry the key without the prefix, the member or field, its value; then names of records. Entries with a name in angle brackets
--   are answers to questions of an earlier call: <version> a channel and `SHA-1 of its definition version`.
-- Keys built here: those that command_shared.lua names, cmd:list:{model}, cmd:owed, points:channels, points:channels:versions,
--   points:pushed, comsrv:{channel}:{kind}. Returns what redis/repair.lua says.
-- include: command_shared
-- include: redis/repair
local ENDED = { success = true, failed = true, cancelled = true, timeout = true }
-- Who writes a command by hand writes the record first: so long it may stand in no list.
local GRACE_MS = 10000
local LISTED = 1000
local V = P .. 'points:channels:versions'
local NEWS = { 'HSET', V, 'word', ARGV[5] }
local IS_HERE = not string.find(P, '{', 1, true) -- in a cluster the values of a channel are elsewhere

-- Before which member of a list, newest first, an id of that age belongs; nil: at its end.
local function younger(list, created)
  for _, id in ipairs(redis.call('LRANGE', list, 0, -1)) do
    local other = tonumber((redis.pcall('HGET', C .. id, 'created_at')) or '')
    if other and other < created then return id end
  end
end

local function look_at_command(id)
  local key = C .. id
  local c = read(id)
  if ENDED[c.status] then
    c.fault = nil
  elseif c.fault then
    if redis.call('EXISTS', key) == 1 then wrong('n', key, 'is no command that can be carried out: ' .. c.fault) end
    return
  end
  local f = redis.call('HMGET', key, 'model_name', 'updated_at')
  local channel = channel_of(c.address)
  if c.status == 'pending' and channel then
    local todo = P .. 'comsrv:' .. channel .. ':todo'
    if not redis.call('LPOS', todo, id) then
      if c.created and c.created < now - GRACE_MS then -- later commands may have been carried out: its turn is over
        wrong('m', todo, 'misses command ' .. id .. ', which ends failed: what waited behind it may have been done', function()
          refuse(id, c, todo, 'its place in ' .. todo .. ' is gone: it was not carried out')
        end)
      end
    elseif c.expires and not redis.call('ZSCORE', KEYS[1], id) then
      wrong('m', KEYS[1], 'misses command ' .. id, { 'ZADD', KEYS[1], int(c.expires), id })
    end
  elseif c.status == 'executing' and not redis.call('ZSCORE', KEYS[1], id) then
    local ends = (tonumber(f[2] or '') or now) + (c.timeout or 0) + tonumber(ARGV[4])
    wrong('m', KEYS[1], 'misses command ' .. id, { 'ZADD', KEYS[1], int(ends), id })
  end
  if f[1] and f[1] ~= '' and c.created and c.created < now - GRACE_MS then
    local list = C .. 'list:' .. f[1]
    if redis.call('LLEN', list) < LISTED and not redis.call('LPOS', list, id) then
      wrong('m', list, 'misses command ' .. id, function()
        local next_one = younger(list, c.created)
        if next_one then redis.call('LINSERT', list, 'BEFORE', next_one, id) else redis.call('RPUSH', list, id) end
      end)
    end
  end
end

local function look_at_entry(name, member, value)
  local key = P .. name
  if name == 'cmd:open' then
    local c = read(member)
    if not c.status or ENDED[c.status] then
      wrong('m', key, c.status and 'has command ' .. member .. ' which has ended' or 'names command ' .. member .. ' which has no record',
        { 'ZREM', key, member })
    end
  elseif string.match(name, '^cmd:list:') then
    if redis.call('EXISTS', C .. member) == 0 then
      wrong('t', key, 'names command ' .. member .. ' which has no record', { 'LREM', key, 0, member })
    end
  elseif string.match(name, '^comsrv:%d+:todo$') then
    local c = read(member)
    local why = c.fault
    if not c.status and redis.call('EXISTS', C .. member) == 0 then why = 'there is no record cmd:' .. member end
    if why and redis.call('LPOS', key, member) then
      wrong('m', key, 'names command ' .. member .. ' which nobody can carry out: ' .. why, function() refuse(member, c, key, why) end)
    end
  elseif name == 'cmd:effects' then
    if not string.match(value, '^comsrv:%d+:%a:%d+ %S+ %d+$') then
      wrong('d', key, 'has an effect of command ' .. member .. ' that cannot be read: the board may not show it', { 'HDEL', key, member })
    end
  elseif name == 'cmd:owed' then
    if not string.match(member, '^comsrv:%d+:%a:%d+$') or not string.match(value, '^%d+ [01] %S+ {.*}$') then
      wrong('n', key, 'has an entry ' .. member .. ' that cannot be read: a device may be owed a write, and nobody does it. Look at the device')
    end
  elseif name == 'points:channels:versions' then
    if member ~= 'word' and redis.call('HEXISTS', P .. 'points:channels', member) == 0 then
      wrong('m', key, 'names channel ' .. member .. ' which has no definition', { 'HDEL', key, member }, NEWS)
    end
  elseif name == 'points:channels' then
    wrong('?', 'version', member)
  elseif name == 'points:pushed' then
    local channel, kind = string.match(member, '^(%d+):(%a)$')
    if not channel then
      wrong('m', key, 'has ' .. member .. ' which is no channel:kind', { 'SREM', key, member })
    elseif IS_HERE and redis.call('EXISTS', P .. 'comsrv:' .. member) == 0 then
      wrong('m', key, 'names ' .. member .. ' of which there is no value', { 'SREM', key, member })
    end
  end
end

local function look_again(what, id, value)
  if what == '<version>' then
    local sign, version = string.match(value, '^(%S+) (%S+)$')
    local text = redis.call('HGET', P .. 'points:channels', id)
    if not text or redis.sha1hex(text) ~= sign or redis.call('HGET', V, id) == version then return end
    wrong('m', V, 'has not the version of channel ' .. id, { 'HSET', V, id, version }, NEWS)
  end
end

local at = 8
for _ = 1, tonumber(ARGV[7]) do
  if string.sub(ARGV[at], 1, 1) == '<' then
    look_again(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  elseif ARGV[at + 1] ~= '' or ARGV[at + 2] ~= '#' then
    look_at_entry(ARGV[at], ARGV[at + 1], ARGV[at + 2])
  end
  at = at + 3
end
for n = at, #ARGV do
  local channel, kind = string.match(ARGV[n], '^comsrv:(%d+):(%a)$')
  if not channel then
    look_at_command(string.sub(ARGV[n], 5))
  elseif redis.call('HEXISTS', P .. 'points:channels', channel) == 0
    and redis.call('SISMEMBER', P .. 'points:pushed', channel .. ':' .. kind) == 0 then
    wrong('m', P .. 'points:pushed', 'misses ' .. channel .. ':' .. kind, { 'SADD', P .. 'points:pushed', channel .. ':' .. kind })
  end
end
return finish(ARGV[6])

#!lua flags=allow-oom
-- Claim channels that are free or whose lease has ended, up to this process's even share, and beyond it those that nobody has
-- claimed for long; longer leases for those that are ours. With less than its share, a process asks for channels of those that
-- have more; only what is asked for changes hands.
-- KEYS 1 points:owners 2 points:pollers 3 points:claims
-- ARGV 1 now in ms ('' = the server's clock) 2 owner 3 lease ms 4 ms that a channel may be free before anybody takes it, then channel ids
-- Returns the share, 1 when channels of others are asked for, how many we have beyond our share because nobody claimed them, the
-- same of all processes, then for each channel, in order: 0 not ours, 1 ours, 2 ours and another process asks for it.
-- A lease that ends later than two leases from now was made before the clock was set back: it ends then.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local me, lease = ARGV[2], tonumber(ARGV[3])
local function int(n) return string.format('%d', n) end
local latest, ends_ms = now + 2 * lease, int(now + lease)
local function parted(text)
  local name, ms = string.match(text or '', '^(.*):(%d+)$')
  return name, tonumber(ms)
end

for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. int(latest), '+inf')) do
  redis.call('ZADD', KEYS[2], int(latest), name)
end
local others = redis.call('ZCOUNT', KEYS[2], '(' .. int(now), '+inf')
local known = redis.call('ZSCORE', KEYS[2], me)
if known and tonumber(known) > now then others = others - 1 end
local share = math.ceil((#ARGV - 4) / (others + 1))

local bids, extras, set, gone = {}, {}, {}, {}
local marks = redis.call('HGETALL', KEYS[3])
for i = 1, #marks, 2 do
  local kind, name = string.match(marks[i], '^(%a+):(.*)$')
  local what, ends = parted(marks[i + 1])
  if not what or ends <= now or ends > latest then
    gone[#gone + 1] = marks[i]
  elseif kind == 'bid' then
    bids[name] = what
  elseif kind == 'extra' then
    extras[name] = tonumber(what)
  end
end

local replies, mine, free, counts, held = {}, {}, {}, {}, {}
for i = 5, #ARGV do
  local owner, ends = parted(redis.call('HGET', KEYS[1], ARGV[i]))
  replies[i] = 0
  if owner == me then
    mine[#mine + 1] = i
  elseif not owner or ends <= now then
    free[#free + 1] = { i, owner and ends or now }
    if not owner then redis.call('HSET', KEYS[1], ARGV[i], ':' .. int(now)) end
  else
    if ends > latest then redis.call('HSET', KEYS[1], ARGV[i], owner .. ':' .. int(latest)) end
    counts[owner] = (counts[owner] or 0) + 1
    held[#held + 1] = { i, owner }
  end
end
local is_beyond = (extras[me] or 0) > 0
for _, one in ipairs(free) do
  if #mine < share then
    mine[#mine + 1] = one[1]
  elseif others > 0 and one[2] + tonumber(ARGV[4]) <= now then
    mine[#mine + 1] = one[1]
    is_beyond = true
  end
end
local extra = is_beyond and others > 0 and math.max(0, #mine - share) or 0

local wanting = share - #mine
for _, one in ipairs(held) do
  local id, owner = ARGV[one[1]], one[2]
  if wanting > 0 and counts[owner] > share then
    local who = bids[id]
    counts[owner] = counts[owner] - 1
    if not who or who == me then
      set[#set + 1] = 'bid:' .. id
      set[#set + 1] = me .. ':' .. ends_ms
      wanting = wanting - 1
    end
  end
end
local asks = #set > 0 and 1 or 0
for _, i in ipairs(mine) do
  local who = bids[ARGV[i]]
  replies[i] = who and who ~= me and 2 or 1
  if who == me then gone[#gone + 1] = 'bid:' .. ARGV[i] end
  redis.call('HSET', KEYS[1], ARGV[i], me .. ':' .. ends_ms)
end
if extra > 0 then
  set[#set + 1] = 'extra:' .. me
  set[#set + 1] = extra .. ':' .. ends_ms
elseif extras[me] then
  gone[#gone + 1] = 'extra:' .. me
end
extras[me] = extra
local all = 0
for _, count in pairs(extras) do all = all + count end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now))
redis.call('ZADD', KEYS[2], ends_ms, me)
for _, field in ipairs(gone) do redis.call('HDEL', KEYS[3], field) end
for i = 1, #set, 2 do redis.call('HSET', KEYS[3], set[i], set[i + 1]) end
if #set > 0 then redis.call('PEXPIRE', KEYS[3], int(10 * lease)) end
local found = { share, asks, extra, all }
for i = 5, #ARGV do found[i] = replies[i] end
return found

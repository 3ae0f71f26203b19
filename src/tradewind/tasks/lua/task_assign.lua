#!lua flags=allow-oom
-- The leader moves queued tasks to the least-loaded live workers that support them; the oldest first, high before
-- normal, one normal after `share` high ones. What cannot run now (no free capable worker, paused or rate-limited type)
-- is parked by route, so that it does not hold up others. Dead lines and cancelled ones are dropped on the way.
-- KEYS 1 scheduler:leader 2 scheduler:epoch 3 queue:high 4 queue:normal 5 workers 6 queue:paused 7 ratelimit:config 8 queue:parked
-- ARGV 6 scheduler id 7 epoch 8 limit 9 share 10 turn (high ones since the last normal one)
-- Also touches: worker:{id}, worker:{id}:queue, worker:{id}:inflight, worker:type:{type}, queue:parked:{priority}:{route},
--   ratelimit:slots:{type}, ratelimit:task:{type}, ratelimit:task:{type}:{window start}, worker:types.
-- Returns {assigned, turn, '1' if there is more to do at once, ms when a rate limit lets the next one pass or 0}; {-1} not the leader.
-- include: shared
if redis.call('GET', KEYS[1]) ~= ARGV[6] or redis.call('GET', KEYS[2]) ~= ARGV[7] then return { -1 } end
local limit, share, turn = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local scan_limit = limit * 4

-- Workers.
local W, free = {}, 0
local function meet(id)
  local f = redis.pcall('HMGET', P .. 'worker:' .. id, 'capacity', 'window', 'status', 'labels')
  local capacity = tonumber(f[1] or '') -- somebody may have registered it by hand, and wrongly
  if not capacity or (f[3] and f[3] ~= 'active') then return end
  local load = load_of(id)
  if not load then return end
  local w = { id = id, capacity = capacity, load = load, labels = ',' .. (f[4] or '') .. ',', got = {} }
  w.free = w.capacity + (tonumber(f[2] or '') or 0) - load
  W[id] = w
  if w.free > 0 then free = free + w.free end
end
local known = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')) do known[#known + 1] = id end
local leased = {}
for i = 1, #known, 2 do
  leased[known[i]] = true
  if tonumber(known[i + 1]) > now then meet(known[i]) end
end

local paused = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[6])) do paused[name] = true end

-- Rate limits: what each limited type may still have now. A window is ten slots; the running slot and the ten before it
-- count in full, so that no window, wherever it begins, sees more than the limit (and a steady load gets 10/11 of it).
local quota, next_ms = {}, 0
local config = redis.call('HGETALL', KEYS[7])
for i = 1, #config, 2 do
  local most, window = string.match(config[i + 1], '^(%d+):(%d+)$')
  most, window = tonumber(most), tonumber(window)
  if not most or window < 10 then -- written by hand, and wrongly: it counts as none
    most, window = math.huge, 1000
  end
  local start = math.floor(now / window) * window
  local base = P .. 'ratelimit:task:' .. config[i]
  local key = base .. ':' .. int(start / 1000)
  local slots, length = P .. 'ratelimit:slots:' .. config[i], window / 10
  local slot, left, first, old = math.floor(now / length), most, nil, {}
  local passed = redis.call('HGETALL', slots)
  for j = 1, #passed, 2 do
    local s = tonumber(passed[j])
    if s < slot - 10 or s > slot then
      old[#old + 1] = passed[j]
    else
      left = left - tonumber(passed[j + 1])
      first = math.min(first or s, s)
    end
  end
  quota[config[i]] = { left = left, used = 0, base = base, key = key, window = window, slots = slots, slot = slot, old = old,
    retry = math.max(now + 1, ((first or slot) + 11) * length) }
end

local routes, by_hand = {}, {}
local function route_of(kind, labels)
  local name = labels and kind .. '@' .. labels or kind
  local r = routes[name]
  if r then return r end
  r = { name = name, kind = kind, can = {} }
  for _, id in ipairs(redis.call('SMEMBERS', P .. 'worker:type:' .. kind)) do
    if not W[id] and not leased[id] then -- registered by hand, as in the seed: lives as long as its hash
      meet(id)
      by_hand[kind] = true
    end
    local w = W[id]
    if w then
      local fits = true
      for label in string.gmatch(labels or '', '[^,]+') do
        if not string.find(w.labels, ',' .. label .. ',', 1, true) then fits = false end
      end
      if fits then r.can[#r.can + 1] = w end
    end
  end
  routes[name] = r
  return r
end
local function least_loaded(r)
  local best, ratio
  for _, w in ipairs(r.can) do
    if w.free > 0 and (not ratio or w.load / w.capacity < ratio) then best, ratio = w, w.load / w.capacity end
  end
  return best
end
-- The worker that takes the next task of this route, or nil when it must wait.
local function worker_for(r)
  if paused['type:' .. r.kind] then return nil end
  local w, q = least_loaded(r), quota[r.kind]
  if w and q and q.left <= 0 then
    if next_ms == 0 or q.retry < next_ms then next_ms = q.retry end
    return nil
  end
  return w
end

-- Decide: nothing is written before `apply`.
local used, moves, parks, drops, lates, met, scanned = {}, {}, {}, {}, {}, {}, 0
local function read(key, many)
  local from = used[key] or 0
  local ids = redis.call('LRANGE', key, -(from + many), -(from + 1))
  used[key] = from + #ids
  return ids
end
local function consider(ids, priority, parking)
  local got = 0
  for i = #ids, 1, -1 do
    local id = ids[i]
    local f = fields(T .. id, 'status', 'type', 'x')
    local more = rare(id, f[3])
    scanned = scanned + 1
    if met[id] then -- a second place in a list, left by an earlier life of the same id: it has one already
      f[1] = ''
    end
    met[id] = true
    if f[1] ~= 'QUEUED' or not f[2] then
      if more.tomb then drops[#drops + 1] = id end
    elseif more.ddl and tonumber(more.ddl) <= now then
      lates[#lates + 1] = { id, f[2], { c = more.c, wait = more.wait, hook = more.hook } } -- it holds no lock now
    else
      local r = route_of(f[2], more.lab or nil)
      local w = worker_for(r)
      if w then
        w.free, w.load = w.free - 1, w.load + 1
        w.got[#w.got + 1] = id
        moves[#moves + 1] = { id, f[2], w.id, more.c }
        local q = quota[r.kind]
        if q then q.left, q.used = q.left - 1, q.used + 1 end
        got = got + 1
      else
        local place = priority .. ':' .. r.name
        parks[place] = parks[place] or {}
        table.insert(parks[place], id)
      end
    end
  end
  return got
end
local lots = { high = {}, normal = {} }
for _, place in ipairs(redis.call('SMEMBERS', KEYS[8])) do
  local priority, kind, labels = string.match(place, '^(%a+):([^@]+)@?(.*)$')
  if lots[priority] then table.insert(lots[priority], { key = P .. 'queue:parked:' .. place, kind = kind, labels = labels ~= '' and labels or nil }) end
end
for _, list in pairs(lots) do -- another one first each time: where types share workers, none waits for the end of another
  for _ = 1, #list > 1 and now % #list or 0 do table.insert(list, table.remove(list, 1)) end
end
local main = { high = KEYS[3], normal = KEYS[4] }
local function fill(priority, many)
  if paused[priority] then return 0, 0 end
  local got, before = 0, scanned
  for _, lot in ipairs(lots[priority]) do
    while got < many and scanned < scan_limit do
      local r = route_of(lot.kind, lot.labels)
      if not worker_for(r) then break end
      local room = many - got
      local q = quota[lot.kind]
      if q then room = math.min(room, q.left) end
      local most = 0
      for _, w in ipairs(r.can) do if w.free > 0 then most = most + w.free end end
      local ids = read(lot.key, math.min(room, most, 200))
      if #ids == 0 then break end
      got = got + consider(ids, priority)
    end
  end
  if got < many then got = got + consider(read(main[priority], math.min(many - got, 200)), priority) end
  return got, scanned - before
end

-- Workers registered by hand are met through the types they serve; with nobody else free, look for them.
if free == 0 then
  for _, kind in ipairs(redis.call('SMEMBERS', P .. 'worker:types')) do route_of(kind) end
  for _, key in pairs(main) do
    local id = redis.call('LINDEX', key, -1)
    local kind = id and redis.call('HGET', T .. id, 'type')
    if kind then route_of(kind) end
  end
end
local done, unit = 0, math.ceil(math.min(limit, free, 200) / (share + 1)) -- a list is read 200 at a time
local out = { high = false, normal = false }
while done < math.min(limit, free) and scanned < scan_limit and not (out.high and out.normal) do
  local priority, many = 'high', share * unit
  if out.high or (turn >= share and not out.normal) then priority, many = 'normal', unit end
  local budget = math.min(limit, free) - done -- `free` grows when a worker registered by hand is met
  if out.high or out.normal then many = budget end
  local got, seen = fill(priority, math.min(many, budget))
  if priority == 'high' then turn = turn + got else turn = 0 end
  if seen == 0 then out[priority] = true end
  done = done + got
end

-- Apply.
for key, many in pairs(used) do redis.call('LTRIM', key, 0, -(many + 1)) end
for id, w in pairs(W) do push('LPUSH', P .. 'worker:' .. id .. ':queue', w.got) end
for place, ids in pairs(parks) do push('LPUSH', P .. 'queue:parked:' .. place, ids) redis.call('SADD', KEYS[8], place) end
for _, m in ipairs(moves) do
  redis.call('HSET', T .. m[1], 'status', 'ASSIGNED', 'worker', m[3])
  if m[4] then uncache(m[1]) end
  announce('assigned', m[1], m[2])
end
for _, id in ipairs(drops) do redis.call('HDEL', T .. id, 'tomb') end
for _, f in ipairs(lates) do
  close(f[1], 'TIMEOUT', f[2], f[3], '{"error":{"type":"DeadlineExceeded","message":"its deadline passed while it was queued"}}')
end
for _, lot in pairs(lots) do
  for _, l in ipairs(lot) do
    if used[l.key] and redis.call('EXISTS', l.key) == 0 then
      redis.call('SREM', KEYS[8], string.sub(l.key, #P + 14))
    end
  end
end
for _, q in pairs(quota) do
  if q.used > 0 then
    redis.call('HINCRBY', q.slots, int(q.slot), q.used)
    push('HDEL', q.slots, q.old)
    redis.call('PEXPIRE', q.slots, int(math.max(60000, 2 * q.window)))
    redis.call('INCRBY', q.key, q.used)
    redis.call('EXPIRE', q.key, int(math.max(60, math.ceil(2 * q.window / 1000))))
    if redis.call('INCRBY', q.base, q.used) == q.used then redis.call('EXPIRE', q.base, 1) end
  end
end
for kind in pairs(by_hand) do redis.call('SADD', P .. 'worker:types', kind) end
settle()
local more = (scanned >= scan_limit or (done >= limit and free > done)) and '1' or '0'
return { done, turn, more, int(next_ms) }

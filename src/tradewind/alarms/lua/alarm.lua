-- Shared by all alarm scripts and by rule_commit: raises, clears and moves alarms. The record, every index, the journal, the
-- event and the notification change together, so that none disagrees with the others.
-- ctx: {prefix, channel_prefix, now (ms, a number)} and, '' or missing = the default in brackets, flood_count (10),
--   flood_end (5), flood_window_ms (600000), escalate_ms (0), retention_ms (30 days), journal_max (1000000), outbox_max (100000).
-- alarm_context(json, now) → ctx from the JSON of tradewind.alarms.context.script_context; now in ms, '' = the server's clock.
-- alarm_raise(ctx, a) → {id, is_new}. a, from JSON or msgpack: id (used if it is new), rule_id, source, level, title; optional:
--   description, category ('general'), tags (list or JSON text), threshold, actual (texts), data (object or JSON text), latched
--   (true: only an operator resolves it), escalate_ms, notify (list of targets), inhibited_by (list of rule ids), nonce (a
--   repeat with the same nonce within 5 minutes changes nothing). Level, category and lengths are checked by the caller.
-- alarm_clear(ctx, rule_id, source, actual, now, why) → id, or false when none is open. now and why may be nil.
-- alarm_restore(ctx, h) → 1, or 0 when it, or another one of its rule and source, is there; -1 when h is no whole open record.
-- alarm_end_rule(ctx, rule_id, word) → how many open alarms of a rule that is 'disabled' or 'deleted' were marked and resolved.
-- alarm_read(ctx, id) → the hash as a table; nil when there is none, or only a part of one (somebody's hand in redis-cli).
-- alarm_move(ctx, h, to, event, who, note, set, drop) carries out any other transition that the caller has found legal; h is what
-- alarm_read gave, and is kept up to date.
-- alarm_count(key, field, n) counts up in a hash of figures.
-- notify_put(ctx, name, value, …) puts an entry into notify:outbox. Of both streams the oldest go when there are too many; what
-- nobody had read of them is counted: journal_dropped:{reader} in alarm:figures, dropped in notify:figures.
-- Keys built here from the prefix: alarm:{id}, alarm:category:, alarm:level:, alarm:status:, alarm:date:, alarm:buckets:,
-- alarm:realtime, alarm:open, alarm:order:, alarm:rule:, alarm:effects:, alarm:timers, alarm:recent, alarm:figures,
-- alarm:talkers, alarm:nonce:, alarm:journal, notify:outbox, notify:figures, station:cursors.
local alarm_raise, alarm_clear, alarm_end_rule, alarm_read, alarm_move, alarm_release, alarm_flood, alarm_places
local alarm_context, alarm_iso, alarm_restore, alarm_count, notify_put
do
  local PRIORITY = { Critical = '5', High = '4', Medium = '3', Low = '2', Info = '1' }
  local OPEN = { New = true, Acknowledged = true, Escalated = true, Suppressed = true }
  local ENDED = { Resolved = true, Closed = true }
  local TEXTS = { 'id', 'title', 'description', 'category', 'priority', 'source_point', 'actual_value', 'data', 'rule_id' }
  local NUMBERS = { 'count', 'first_seen', 'last_seen', 'announced_ms', 'version' }
  local MAYBE_NUMBERS = { 'escalate_ms', 'shelved_until', 'ended_ms', 'escalations' }
  local NONCE_MS, TALKERS, RELEASE = 300000, 1000, 100
  -- How many causes of causes are followed, how many alarms of a rule are looked at.
  local CHAIN, CANDIDATES = 50, 10
  -- Entries that leave a full journal together; readers are fields of station:cursors, SQL is one from the beginning.
  local CUT, READERS = 100, 'alarm:journal@'

  local function int(n) return string.format('%.0f', n) end
  local function json(text) return (string.gsub(cjson.encode(text), '\\/', '/')) end
  local function given(x) if x == nil or x == cjson.null or x == '' then return nil end return x end
  local function text(x)
    x = given(x)
    if type(x) == 'number' then return string.format('%.14g', x) end
    return x and tostring(x) or ''
  end
  local function json_text(x, empty)
    x = given(x)
    if type(x) == 'table' then return next(x) == nil and empty or (string.gsub(cjson.encode(x), '\\/', '/')) end
    return x or empty
  end
  local function setting(ctx, name, default) return tonumber(given(ctx[name]) or default) end

  -- ISO time (milliseconds only when there are any), day and hour of ms since 1970.
  local function stamps(ms)
    local s = math.floor(ms / 1000)
    local z, rest = math.floor(s / 86400) + 719468, s % 86400
    local era = math.floor(z / 146097)
    local doe = z - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local d, m = doy - math.floor((153 * mp + 2) / 5) + 1, mp < 10 and mp + 3 or mp - 9
    local y, hour = yoe + era * 400 + (m <= 2 and 1 or 0), math.floor(rest / 3600)
    local iso = string.format('%04d-%02d-%02dT%02d:%02d:%02d', y, m, d, hour, math.floor(rest / 60) % 60, rest % 60)
    local part = ms % 1000
    if part ~= 0 then iso = iso .. string.format('.%03d', part) end
    return iso .. 'Z', string.format('%04d-%02d-%02d', y, m, d), string.format('%04d%02d%02d%02d', y, m, d, hour)
  end

  alarm_iso = function(ms) return (stamps(ms)) end

  alarm_context = function(data, now)
    local ctx = cjson.decode(data)
    ctx.now = tonumber(now)
    if not ctx.now then
      local t = redis.call('TIME')
      ctx.now = t[1] * 1000 + math.floor(t[2] / 1000)
    end
    return ctx
  end

  -- Count up; what another program has left there that is no whole number begins anew. Returns the count.
  alarm_count = function(key, field, n)
    local found = redis.pcall('HINCRBY', key, field, n)
    if type(found) == 'table' and found.err and string.find(found.err, 'not an integer') then
      redis.call('HSET', key, field, n)
      return n
    end
    return type(found) == 'table' and redis.call('HINCRBY', key, field, n) or found
  end

  -- What the scripts count on: half a record must not stop those of the others.
  local function is_whole(h)
    if not (PRIORITY[h.level] and (OPEN[h.status] or ENDED[h.status])) then return false end
    for _, name in ipairs(TEXTS) do if not h[name] then return false end end
    for _, name in ipairs(NUMBERS) do if not tonumber(h[name]) then return false end end
    for _, name in ipairs(MAYBE_NUMBERS) do if h[name] and not tonumber(h[name]) then return false end end
    return OPEN[h.status] or h.ended_ms ~= nil
  end

  alarm_read = function(ctx, id)
    local flat = redis.call('HGETALL', ctx.prefix .. 'alarm:' .. id)
    if #flat == 0 then return nil end
    local h = {}
    for i = 1, #flat, 2 do h[flat[i]] = flat[i + 1] end
    return is_whole(h) and h or nil
  end

  -- Everything that follows from the record: where the id must stand, and the texts kept beside it.
  alarm_places = function(ctx, h)
    local A, iso, day, hour = ctx.prefix .. 'alarm:', stamps(tonumber(h.first_seen))
    local places = { is_open = OPEN[h.status] or false, slot = h.rule_id .. '|' .. h.source_point }
    places.sets = { A .. 'category:' .. h.category, A .. 'level:' .. h.level, A .. 'status:' .. h.status, A .. 'date:' .. day }
    places.orders = { A .. 'order:all' }
    if places.is_open then
      places.sets[5] = A .. 'rule:' .. h.rule_id
      places.orders[2], places.orders[3] = A .. 'order:open', A .. 'order:open:' .. h.level
      if h.cause then places.sets[6] = A .. 'effects:' .. h.cause end
    else
      places.orders[2] = A .. 'order:ended'
    end
    places.bucket = A .. 'buckets:' .. hour
    places.compact = '{"id":' .. json(h.id) .. ',"level":' .. json(h.level) .. ',"status":' .. json(h.status)
      .. ',"category":' .. json(h.category) .. ',"source_point":' .. json(h.source_point) .. ',"rule_id":' .. json(h.rule_id)
      .. ',"title":' .. json(h.title) .. ',"created_at":"' .. iso .. '","version":' .. h.version .. '}'
    places.realtime_field = h.category .. ':' .. h.id
    places.realtime = '{"id":' .. json(h.id) .. ',"level":' .. json(h.level) .. ',"created_at":"' .. iso .. '"}'
    places.timers = {}
    if h.status == 'New' and h.escalate_ms then
      places.timers['escalate:' .. h.id] = tonumber(h.announced_ms) + tonumber(h.escalate_ms)
    end
    if places.is_open and h.shelved_until then places.timers['unshelve:' .. h.id] = tonumber(h.shelved_until) end
    if h.status == 'Closed' or (h.status == 'Resolved' and h.acknowledged_at) then
      places.timers['close:' .. h.id] = tonumber(h.ended_ms) + setting(ctx, 'retention_ms', 2592000000)
    end
    return places
  end

  -- Bring the indexes from what followed from the record before (nil: there was none) to what follows now.
  local function reindex(ctx, id, old, new, score)
    local A = ctx.prefix .. 'alarm:'
    local had, has = {}, {}
    for _, key in ipairs(old and old.sets or {}) do had[key] = true end
    for _, key in ipairs(new.sets) do
      has[key] = true
      if not had[key] then redis.call('SADD', key, id) end
    end
    for key in pairs(had) do if not has[key] then redis.call('SREM', key, id) end end
    had, has = {}, {}
    for _, key in ipairs(old and old.orders or {}) do had[key] = true end
    for _, key in ipairs(new.orders) do
      has[key] = true
      if not had[key] then redis.call('ZADD', key, score, id) end
    end
    for key in pairs(had) do if not has[key] then redis.call('ZREM', key, id) end end
    redis.call('HSET', new.bucket, id, new.compact)
    if new.is_open then
      redis.call('HSET', A .. 'realtime', new.realtime_field, new.realtime)
      if not old then redis.call('HSET', A .. 'open', new.slot, id) end
    elseif old and old.is_open then
      redis.call('HDEL', A .. 'realtime', new.realtime_field)
      if redis.call('HGET', A .. 'open', new.slot) == id then redis.call('HDEL', A .. 'open', new.slot) end
    end
    for member in pairs(old and old.timers or {}) do
      if not new.timers[member] then redis.call('ZREM', A .. 'timers', member) end
    end
    for member, at in pairs(new.timers) do redis.call('ZADD', A .. 'timers', int(at), member) end
  end

  local function is_after(id, cursor)
    local ms, n = string.match(id, '^(%d+)-(%d+)$')
    local cursor_ms, cursor_n = string.match(cursor, '^(%d+)-(%d+)$')
    ms, cursor_ms = tonumber(ms), tonumber(cursor_ms) or 0
    return ms > cursor_ms or (ms == cursor_ms and tonumber(n) > (tonumber(cursor_n) or 0))
  end

  local function bound_journal(ctx)
    local key, figures = ctx.prefix .. 'alarm:journal', ctx.prefix .. 'alarm:figures'
    if redis.call('XLEN', key) < setting(ctx, 'journal_max', 1000000) + CUT then return end
    local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', CUT + 1)
    local stored, cursors = redis.call('HGETALL', ctx.prefix .. 'station:cursors'), { sql = '0-0' }
    for i = 1, #stored, 2 do
      if string.sub(stored[i], 1, #READERS) == READERS then cursors[string.sub(stored[i], #READERS + 1)] = stored[i + 1] end
    end
    for reader, cursor in pairs(cursors) do
      local unread = 0
      for i = 1, CUT do if is_after(oldest[i][1], cursor) then unread = unread + 1 end end
      if unread > 0 then alarm_count(figures, 'journal_dropped:' .. reader, unread) end
    end
    redis.call('XTRIM', key, 'MINID', oldest[CUT + 1][1])
  end

  notify_put = function(ctx, ...)
    local key, most = ctx.prefix .. 'notify:outbox', setting(ctx, 'outbox_max', 100000)
    redis.call('XADD', key, '*', ...)
    if redis.call('XLEN', key) <= most then return end
    local gone = redis.call('XTRIM', key, 'MAXLEN', '~', most) -- what is planned has left the stream: these are all unread
    if gone > 0 then alarm_count(ctx.prefix .. 'notify:figures', 'dropped', gone) end
  end

  -- Write the transition down, say it, and put it out for notification.
  local function tell(ctx, h, from, event, who, note, is_quiet)
    local P, at = ctx.prefix, int(ctx.now)
    redis.call('XADD', P .. 'alarm:journal', '*', 'id', h.id, 'event', event, 'from', from, 'to', h.status, 'at', at, 'who',
      who or '', 'note', note or '', 'rule_id', h.rule_id, 'source', h.source_point, 'level', h.level, 'category', h.category,
      'version', h.version, 'count', h.count, 'actual', h.actual_value, 'title', h.title)
    bound_journal(ctx)
    redis.call('PUBLISH', ctx.channel_prefix .. 'alarm:events', '{"event":"' .. event .. '","alarm_id":' .. json(h.id)
      .. ',"rule_id":' .. json(h.rule_id) .. ',"source":' .. json(h.source_point) .. ',"level":"' .. h.level .. '","status":"'
      .. h.status .. '","timestamp":' .. at .. '}')
    if is_quiet then return end
    local flood = redis.call('HEXISTS', P .. 'alarm:figures', 'flood_since')
    notify_put(ctx, 'kind', 'alarm', 'event', event, 'alarm_id', h.id, 'rule_id', h.rule_id, 'source', h.source_point, 'level',
      h.level, 'category', h.category, 'status', h.status, 'title', h.title, 'text', h.description, 'actual', h.actual_value,
      'targets', h.notify or '', 'flood', flood, 'at', at, 'who', who or '', 'note', note or '', 'key', h.id .. ':' .. h.version)
  end

  -- Begin or end a flood; new_id: an alarm that was announced just now.
  alarm_flood = function(ctx, new_id)
    local recent, figures, now = ctx.prefix .. 'alarm:recent', ctx.prefix .. 'alarm:figures', ctx.now
    if new_id then redis.call('ZADD', recent, int(now), new_id) end
    local window = setting(ctx, 'flood_window_ms', 600000)
    redis.call('ZREMRANGEBYSCORE', recent, '-inf', int(now - window))
    redis.call('ZREMRANGEBYSCORE', recent, int(now + window), '+inf') -- the clock was set back
    local n, since = redis.call('ZCARD', recent), redis.call('HGET', figures, 'flood_since')
    if not since and n >= setting(ctx, 'flood_count', 10) then
      redis.call('HSET', figures, 'flood_since', int(now))
      alarm_count(figures, 'floods', 1)
    elseif since and n < setting(ctx, 'flood_end', 5) then
      redis.call('HDEL', figures, 'flood_since')
      alarm_count(figures, 'flood_ms', int(math.max(0, now - (tonumber(since) or now))))
    end
  end

  alarm_move = function(ctx, h, to, event, who, note, set, drop)
    local from, old, now = h.status, alarm_places(ctx, h), ctx.now
    local figures = ctx.prefix .. 'alarm:figures'
    set, drop = set or {}, drop or {}
    if given(note) then set.note = note end
    if OPEN[from] and not OPEN[to] then
      set.ended_ms = int(now)
      drop[#drop + 1] = 'shelved_until' drop[#drop + 1] = 'held_by' drop[#drop + 1] = 'cause'
      alarm_count(figures, 'resolved', 1)
      alarm_count(figures, 'resolve_ms', int(math.max(0, now - tonumber(h.first_seen))))
    elseif from ~= to and to == 'New' then
      set.announced_ms = int(now)
      drop[#drop + 1] = 'acknowledged_by' drop[#drop + 1] = 'acknowledged_at'
    end
    if set.acknowledged_at then
      alarm_count(figures, 'acknowledged', 1)
      alarm_count(figures, 'ack_ms', int(math.max(0, now - tonumber(h.announced_ms))))
    end
    h.status, h.version, h.updated_at = to, int(tonumber(h.version) + 1), (stamps(now))
    local flat = { 'status', to, 'version', h.version, 'updated_at', h.updated_at }
    for name, value in pairs(set) do h[name] = value flat[#flat + 1] = name flat[#flat + 1] = value end
    redis.call('HSET', ctx.prefix .. 'alarm:' .. h.id, unpack(flat))
    if #drop > 0 then
      for _, name in ipairs(drop) do h[name] = nil end
      redis.call('HDEL', ctx.prefix .. 'alarm:' .. h.id, unpack(drop))
    end
    reindex(ctx, h.id, old, alarm_places(ctx, h), h.first_seen)
    if from ~= to and to == 'New' then alarm_flood(ctx, h.id) end
    tell(ctx, h, from, event, who, note, from == 'Suppressed' and to == 'Suppressed')
    if OPEN[from] and not OPEN[to] then alarm_release(ctx, h.id) end
  end

  -- Whether the alarm is, or is suppressed by, that other one, be it through others; also when that takes long to find out.
  local function is_due_to(ctx, id, other)
    for _ = 1, CHAIN do
      if id == other then return true end
      id = redis.call('HGET', ctx.prefix .. 'alarm:' .. id, 'cause')
      if not id then return false end
    end
    return true
  end

  -- The open alarm that suppresses one: of the channel that its source belongs to, or of a rule that is named. own: the id of one
  -- that is there already; what it suppresses itself cannot be its cause, or both would stay suppressed for ever.
  local function cause_of(ctx, source, rules, own)
    local A, place = ctx.prefix .. 'alarm:', string.match(source, '^(.+:.+):[^:]*$')
    local function fits(id) return id and not (own and is_due_to(ctx, id, own)) end
    while place do
      local id = redis.call('HGET', A .. 'open', 'station|' .. place)
      if fits(id) then return id end
      place = string.match(place, '^(.+:.+):[^:]*$')
    end
    for _, rule in ipairs(rules) do
      local id = redis.call('HGET', A .. 'open', rule .. '|' .. source)
      if fits(id) then return id end
      for _, any in ipairs(redis.call('SRANDMEMBER', A .. 'rule:' .. rule, own and CANDIDATES or 1)) do
        if fits(any) then return any end
      end
    end
  end

  local function rules_of(h)
    local is_json, rules = pcall(cjson.decode, h.inhibited_by or '[]')
    return is_json and type(rules) == 'table' and rules or {}
  end

  -- Let the alarms go that this one, which has ended, suppressed; what is too much for one script is left to the timer.
  alarm_release = function(ctx, id)
    local A = ctx.prefix .. 'alarm:'
    local ids = redis.call('SRANDMEMBER', A .. 'effects:' .. id, RELEASE)
    for _, effect in ipairs(ids) do
      local h = alarm_read(ctx, effect)
      local other = h and h.cause == id and cause_of(ctx, h.source_point, rules_of(h), h.id)
      if other then
        alarm_move(ctx, h, 'Suppressed', 'suppressed', '', 'suppressed by ' .. other, { cause = other })
      elseif h and h.cause == id then
        local is_held = h.shelved_until or h.held_by
        alarm_move(ctx, h, is_held and h.status or 'New', 'released', '', 'its cause has ended', nil, { 'cause' })
      else
        redis.call('SREM', A .. 'effects:' .. id, effect)
      end
    end
    if redis.call('EXISTS', A .. 'effects:' .. id) == 1 then
      redis.call('ZADD', A .. 'timers', int(ctx.now), 'release:' .. id)
    else
      redis.call('ZREM', A .. 'timers', 'release:' .. id)
    end
  end

  local function again(ctx, a, h)
    local seen = int(math.max(ctx.now, tonumber(h.last_seen)))
    local actual = given(a.actual) and text(a.actual) or h.actual_value
    local key = ctx.prefix .. 'alarm:' .. h.id
    h.last_seen, h.actual_value = seen, actual
    h.count = tostring(alarm_count(key, 'count', 1))
    redis.call('HSET', key, 'last_seen', seen, 'actual_value', actual)
    if PRIORITY[a.level] > h.priority then
      local from = h.level
      alarm_move(ctx, h, h.status, 'level', '', from .. ' → ' .. a.level, { level = a.level, priority = PRIORITY[a.level] },
        { 'cleared_at' })
    elseif h.cleared_at then
      alarm_move(ctx, h, h.status, 'raised', '', 'active again', nil, { 'cleared_at' })
    end
  end

  local function create(ctx, a)
    local rules = given(a.inhibited_by) or {}
    local now, iso, cause = int(ctx.now), stamps(ctx.now), cause_of(ctx, a.source, rules)
    local h = { id = a.id, title = text(a.title), description = text(a.description), level = a.level,
      status = cause and 'Suppressed' or 'New', category = given(a.category) or 'general', priority = PRIORITY[a.level],
      tags = json_text(a.tags, '[]'), source_point = a.source, threshold_value = text(a.threshold),
      actual_value = text(a.actual), created_at = iso, updated_at = iso, data = json_text(a.data, '{}'), rule_id = a.rule_id,
      count = '1', first_seen = now, last_seen = now, announced_ms = now, version = '1', cause = cause }
    local escalate = given(a.escalate_ms) or setting(ctx, 'escalate_ms', 0)
    if tonumber(escalate) > 0 then h.escalate_ms = int(tonumber(escalate)) end
    if given(a.latched) then h.latched = '1' end
    if #rules > 0 then h.inhibited_by = json_text(rules) end
    if given(a.notify) then h.notify = json_text(a.notify, '[]') end
    local flat = {}
    for name, value in pairs(h) do flat[#flat + 1] = name flat[#flat + 1] = value end
    redis.call('HSET', ctx.prefix .. 'alarm:' .. h.id, unpack(flat))
    reindex(ctx, h.id, nil, alarm_places(ctx, h), now)
    local figures = ctx.prefix .. 'alarm:figures'
    redis.call('HSETNX', figures, 'since_ms', now)
    alarm_count(figures, 'raised', 1)
    alarm_count(figures, 'level:' .. h.level, 1)
    if not cause then alarm_flood(ctx, h.id) end
    tell(ctx, h, '', 'raised', '', cause and 'suppressed by ' .. cause or '', cause)
  end

  alarm_raise = function(ctx, a)
    local A = ctx.prefix .. 'alarm:'
    local nonce = given(a.nonce)
    if not PRIORITY[a.level] then a.level = 'High' end -- the caller should have checked; no alarm is lost over a word
    local before = nonce and redis.call('GET', A .. 'nonce:' .. nonce)
    if before then return { before, before == a.id } end
    local id, is_new = redis.call('HGET', A .. 'open', a.rule_id .. '|' .. a.source), false
    local h = id and alarm_read(ctx, id)
    if not h and redis.call('EXISTS', A .. a.id) == 1 then return { a.id, true } end -- a repeat, and it has ended since
    if h then
      again(ctx, a, h)
    else
      id, is_new = a.id, true
      create(ctx, a)
    end
    local talkers = A .. 'talkers'
    redis.call('ZINCRBY', talkers, 1, a.rule_id .. '|' .. a.source)
    if redis.call('ZCARD', talkers) > TALKERS * 1.2 then redis.call('ZREMRANGEBYRANK', talkers, 0, -TALKERS - 1) end
    if nonce then redis.call('SET', A .. 'nonce:' .. nonce, id, 'PX', NONCE_MS) end
    return { id, is_new }
  end

  alarm_clear = function(ctx, rule_id, source, actual, now, why)
    if now then ctx.now = tonumber(now) end
    local id = redis.call('HGET', ctx.prefix .. 'alarm:open', rule_id .. '|' .. source)
    local h = id and alarm_read(ctx, id)
    if not h then return false end
    local set = given(actual) and { actual_value = text(actual) } or {}
    if why == nil or why == '' then why = 'condition cleared' end
    if h.latched then
      if h.cleared_at then return id end
      set.cleared_at = (stamps(ctx.now))
      alarm_move(ctx, h, h.status, 'cleared', '', why .. ', latched', set)
    else
      set.resolved_at = (stamps(ctx.now))
      alarm_move(ctx, h, 'Resolved', 'cleared', '', why, set)
    end
    return id
  end

  -- Bring a record back as it was; the journal says so, nobody is notified: they were, when it was raised.
  alarm_restore = function(ctx, h)
    local A = ctx.prefix .. 'alarm:'
    if not is_whole(h) or not OPEN[h.status] then return -1 end
    local places = alarm_places(ctx, h)
    if redis.call('EXISTS', A .. h.id) == 1 or redis.call('HEXISTS', A .. 'open', places.slot) == 1 then return 0 end
    local flat = {}
    for name, value in pairs(h) do flat[#flat + 1] = name flat[#flat + 1] = value end
    redis.call('HSET', A .. h.id, unpack(flat))
    reindex(ctx, h.id, nil, places, h.first_seen)
    tell(ctx, h, h.status, 'restored', '', 'from the copy in SQL', true)
    return 1
  end

  alarm_end_rule = function(ctx, rule_id, word)
    local ids = redis.call('SMEMBERS', ctx.prefix .. 'alarm:rule:' .. rule_id)
    for _, id in ipairs(ids) do
      local h = alarm_read(ctx, id)
      if h then
        local rest = string.match(h.data, '^{%s*(.*)$') or '}'
        local data = '{"rule_state":' .. json(word) .. (string.sub(rest, 1, 1) == '}' and '' or ',') .. rest
        alarm_move(ctx, h, 'Resolved', 'resolved', '', 'rule ' .. word, { data = data, resolved_at = (stamps(ctx.now)) })
      end
    end
    return #ids
  end
end

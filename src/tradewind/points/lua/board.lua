-- Shared by the scripts that write to the board, also those of other rooms: board_write(k, a) writes batches.
-- KEYS k the feed, then per batch: values, times, qualities, mark, substitutions of the channel (for a model: the values again,
-- its fields cannot be substituted). ARGV a now in ms ('' = the server's clock), a+1 ms that a time
-- may lie in the future, a+2 single|batch|off (messages; with +points also a channel per point), a+3 '1' in a cluster, a+4 number of batches, then per batch: key as it
-- stands in the feed, pub/sub channel, ms of all values (0 = now), ms of each value ('' or 'ms,ms'), 'id:value,…', the same as
-- msgpack {id, value, …} (twice as fast to take apart), 'id:quality,…' of values that are not good, the same of points without a value, origin, ms to live (0 = for ever), id of this
-- call: a repeat after a lost reply finds it in the mark. Several batches may be of one hash: they are written in order. Keys built: none.
-- Returns {accepted, late, duplicates, equal, clamped, replaced, held} in points; held: the point is substituted, and what its device says
-- is kept beside what people say.
-- A value that is written as of now is never late: it takes the time of one that lies ahead by no more than a device's clock may.
-- A stored time beyond that is from before the clock was set back: what comes next replaces it, and the feed says so (b).
-- board_substitute and board_release begin and end a substitution, see point_substitute.lua and point_release.lua; hash `k` as a batch.
local board_write, board_substitute, board_release
do
  local PIECE = 4000 -- what unpack may put on the stack
  local function int(n) return string.format('%.0f', n) end

  -- A stored time; nil for what a foreign program has left that is none.
  local function time_of(text)
    local ms = tonumber(text or '')
    return ms and ms >= 0 and ms < 1e13 and ms or nil
  end

  local function each(command, key, list, n)
    for from = 1, n, PIECE do redis.call(command, key, unpack(list, from, math.min(from + PIECE - 1, n))) end
  end

  local function hmget(key, ids)
    local found = {}
    for from = 1, #ids, PIECE do
      local to = math.min(from + PIECE - 1, #ids)
      local part = redis.call('HMGET', key, unpack(ids, from, to))
      for i = 1, to - from + 1 do found[from + i - 1] = part[i] end
    end
    return found
  end

  local function words(text)
    local found = {}
    for id, word in string.gmatch(text, '([^:,]+):(%a+)') do found[id] = word end
    return found
  end

  local function feed(key, name, ms, d, q, times, late, origin, is_event, is_back)
    local entry = { 'k', name, 't', ms, 'd', d }
    local function add(field, value) entry[#entry + 1] = field entry[#entry + 1] = value end
    if q ~= '' then add('q', q) end
    if times ~= '' then add('p', times) end
    if late then add('l', '1') end
    if is_event then add('e', '1') end
    if is_back then add('b', '1') end
    if origin ~= '' then add('o', origin) end
    redis.call('XADD', key, '*', unpack(entry))
  end

  -- Messages go out only when somebody listens; in a cluster that may be on another node.
  local patterns
  local function publish(channel, mode, is_cluster, d)
    if mode == 'off' or d == '' then return end
    local kind, point_channels = string.match(mode, '^(%a+)(.*)$')
    patterns = patterns or is_cluster and 1 or redis.call('PUBSUB', 'NUMPAT')
    if kind ~= 'off' and (patterns > 0 or redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0) then
      if kind == 'batch' then
        redis.call('PUBLISH', channel, d)
      else
        for pair in string.gmatch(d, '[^,]+') do redis.call('PUBLISH', channel, pair) end
      end
    end
    if point_channels == '' then return end
    for id, value in string.gmatch(d, '([^:]+):([^,]+),?') do
      local name = channel .. ':' .. id
      if patterns > 0 or redis.call('PUBSUB', 'NUMSUB', name)[2] > 0 then
        redis.call('PUBLISH', name, id .. ':' .. value)
      end
    end
  end

  -- Points that change nothing but their quality. Returns 'id:quality,…' of those that do.
  local function mark_only(key, marks)
    local ids, wanted, changed = {}, {}, {}
    for id, word in string.gmatch(marks, '([^:,]+):(%a+)') do ids[#ids + 1] = id wanted[#ids] = word end
    local had, set, gone = hmget(key, ids), {}, {}
    for i, id in ipairs(ids) do
      if wanted[i] ~= (had[i] or 'good') then
        changed[#changed + 1] = id .. ':' .. wanted[i]
        if wanted[i] == 'good' then gone[#gone + 1] = id else set[#set + 1] = id set[#set + 1] = wanted[i] end
      end
    end
    each('HSET', key, set, #set)
    each('HDEL', key, gone, #gone)
    return table.concat(changed, ',')
  end

  -- Sort out the points of a batch one by one: when a time is not newer than all that the hash has, or lies in the future.
  local function sift(k, flat, q, ts, times, now, limit, newest)
    local s = { ids = {}, flat = {}, flat_ts = {}, pairs = {}, ms = {}, q = {}, late = {}, late_ms = {}, late_q = {},
      good = {}, poor = {}, accepted = 0, duplicates = 0, equal = 0, clamped = 0, replaced = 0, newest = newest }
    local ids, values, n = s.ids, {}, #flat / 2
    for i = 1, n do ids[i], values[i] = flat[2 * i - 1], flat[2 * i] end
    local ms, next_ms = {}, times ~= '' and string.gmatch(times, '%d+')
    local quality, oldest, is_now = words(q), math.huge, {}
    for i = 1, n do
      local t = next_ms and tonumber(next_ms()) or ts
      is_now[i] = t == 0
      if t == 0 then t = now end
      if t > limit then
        t = now
        s.clamped = s.clamped + 1
        if quality[ids[i]] ~= 'bad' then quality[ids[i]] = 'uncertain' end
      end
      ms[i] = t
      if t < oldest then oldest = t end
    end
    local had = oldest <= newest and hmget(KEYS[k + 1], ids) or {}
    local same, at = {}, {}
    for i = 1, n do
      had[i] = time_of(had[i])
      if is_now[i] and had[i] and had[i] > now and had[i] <= limit then ms[i] = had[i] end
    end
    for i = 1, n do
      if had[i] and had[i] == ms[i] then same[#same + 1] = ids[i] at[#same] = i end
    end
    local old, old_q = hmget(KEYS[k], same), hmget(KEYS[k + 2], same)
    local repeated = {}
    for j, i in ipairs(at) do
      if old[j] == values[i] and (old_q[j] or nil) == quality[ids[i]] then
        repeated[i] = true
      else
        s.equal = s.equal + 1
      end
    end
    for i = 1, n do
      local id, t, word = ids[i], ms[i], quality[ids[i]]
      if repeated[i] then
        s.duplicates = s.duplicates + 1
      elseif had[i] and had[i] > t and had[i] <= limit then
        s.late[#s.late + 1] = id .. ':' .. values[i]
        s.late_ms[#s.late] = int(t)
        if word then s.late_q[#s.late_q + 1] = id .. ':' .. word end
      else
        local m = s.accepted
        if had[i] and had[i] > limit then s.replaced = s.replaced + 1 end
        s.flat[2 * m + 1], s.flat[2 * m + 2] = id, values[i]
        s.flat_ts[2 * m + 1], s.flat_ts[2 * m + 2] = id, int(t)
        m = m + 1
        s.accepted, s.pairs[m], s.ms[m] = m, id .. ':' .. values[i], int(t)
        if t > s.newest then s.newest = t end
        if word then
          s.q[#s.q + 1] = id .. ':' .. word
          s.poor[#s.poor + 1] = id
          s.poor[#s.poor + 1] = word
        else
          s.good[#s.good + 1] = id
        end
      end
    end
    return s
  end

  -- The time for the field t (the newest), and the field p: '' when all are the same.
  local function joined(ms)
    local top, is_one = ms[1], true
    for i = 2, #ms do
      if ms[i] ~= ms[1] then is_one = false end
      if ms[i] > top then top = ms[i] end
    end
    return top, is_one and '' or table.concat(ms, ',')
  end

  local function newest_of(key)
    local top = 0
    for _, ms in ipairs(redis.call('HVALS', key)) do top = math.max(top, time_of(ms) or 0) end
    return top
  end

  local DEVICE = { good = 'good', uncertain = 'uncertain', bad = 'bad' }

  -- A stored substitution or release: texts only; nil for what no script of ours has left.
  local function record_of(text)
    local is_read, record = pcall(cjson.decode, text or '')
    if not is_read or type(record) ~= 'table' or not (time_of(record.since) or time_of(record.released)) then return nil end
    for name, value in pairs(record) do
      if type(value) ~= 'string' then record[name] = nil end
    end
    if not tonumber(record.device_value or '') then record.device_value = nil end
    record.device_quality = DEVICE[record.device_quality or 'good'] or 'uncertain'
    return record
  end

  -- Substitutions and releases of points of one hash, by id; nil for none.
  local function substitutions(key, name)
    local kind, found = string.sub(name, -1), nil
    local stored = redis.pcall('HGETALL', key)
    if stored.err then return nil end
    for i = 1, #stored, 2 do
      local its, id = string.match(stored[i], '^(%a):(%d+)$')
      local record = its == kind and record_of(stored[i + 1])
      if record then
        found = found or {}
        found[id] = record
      end
    end
    return found
  end

  local function keep(k, name, id, record)
    redis.call('HSET', KEYS[k + 4], string.sub(name, -1) .. ':' .. id, cjson.encode(record))
  end

  -- The time for a value that stands from now on, and whether what stands is from before the clock was set back.
  local function moment(k, id, now, limit)
    local had = time_of(redis.call('HGET', KEYS[k + 1], id) or '') or 0
    return had > limit and now or math.max(now, had), had > limit
  end

  -- Show a value that no batch brings. Its quality is told even when it is good: who reads the feed must see that it changed.
  local function show(k, to, id, value, ts, word, is_back)
    redis.call('HSET', KEYS[k], id, value)
    redis.call('HSET', KEYS[k + 1], id, int(ts))
    if word == 'good' then redis.call('HDEL', KEYS[k + 2], id) else redis.call('HSET', KEYS[k + 2], id, word) end
    local newest, last = string.match(redis.call('GET', KEYS[k + 3]) or '', '^(%d+) (.*)$')
    if newest and tonumber(newest) < ts then redis.call('SET', KEYS[k + 3], int(ts) .. ' ' .. last) end
    feed(to.stream, to.name, int(ts), id .. ':' .. value, id .. ':' .. word, '', false, 'substitute', false, is_back)
    publish(to.channel, to.mode, to.is_cluster, id .. ':' .. value)
  end

  -- `to`: name of the hash, pub/sub channel, mode, is_cluster, stream of the feed. The device's value is kept beside it. Returns the time of the substituted value.
  board_substitute = function(k, to, id, value, said, now, limit)
    local field = string.sub(to.name, -1) .. ':' .. id
    local record = record_of(redis.call('HGET', KEYS[k + 4], field) or nil)
    local ts, is_back = moment(k, id, now, limit)
    if not record or record.released then
      record = {
        device_value = redis.call('HGET', KEYS[k], id) or nil,
        device_ts = record and record.device_ts or int(time_of(redis.call('HGET', KEYS[k + 1], id) or '') or 0),
        device_quality = redis.call('HGET', KEYS[k + 2], id) or 'good',
        held = '0',
      }
    end
    for name, text in pairs(said) do record[name] = text end
    record.value, record.since = value, int(ts)
    keep(k, to.name, id, record)
    show(k, to, id, value, ts, 'substituted', is_back)
    return int(ts)
  end

  -- Show what the device said last, if the record is still what it was: `expected` is its time, or nil. Its quality is `uncertain`
  -- when it is older than `max_age` and the channel has not answered since (`answered`, ms). Returns value and quality; nil: there
  -- is no such substitution.
  board_release = function(k, to, id, expected, answered, max_age, now, limit, nonce)
    local field = string.sub(to.name, -1) .. ':' .. id
    local record = record_of(redis.call('HGET', KEYS[k + 4], field) or nil)
    if not record then return nil end
    if record.released then
      if record.nonce == nonce then return redis.call('HGET', KEYS[k], id) or '', redis.call('HGET', KEYS[k + 2], id) or 'good' end
      if record.released == expected then redis.call('HDEL', KEYS[k + 4], field) end -- long ago
      return nil
    end
    if expected and record.since ~= expected then return nil end
    local word = record.device_quality
    local said = time_of(record.device_ts) or 0
    local is_old = now - math.max(said <= limit and said or 0, answered <= limit and answered or 0) > max_age
    if word == 'good' and is_old then word = 'uncertain' end
    local ts, is_back = moment(k, id, now, limit)
    if record.device_value then
      show(k, to, id, record.device_value, ts, word, is_back)
      -- What the device dates before this moment, but after what it said last, is news all the same; see set_aside.
      keep(k, to.name, id, { released = int(ts), device_ts = record.device_ts, nonce = nonce })
      return record.device_value, word
    end
    redis.call('HDEL', KEYS[k], id)
    redis.call('HDEL', KEYS[k + 1], id)
    word = record.device_quality
    if word == 'good' then redis.call('HDEL', KEYS[k + 2], id) else redis.call('HSET', KEYS[k + 2], id, word) end
    redis.call('HDEL', KEYS[k + 4], field)
    feed(to.stream, to.name, int(ts), '', id .. ':bad', '', false, 'substitute', false, is_back)
    return '', 'bad'
  end

  -- Take what belongs to substituted points out of a batch and keep it with their substitutions. What is older than a substitution
  -- stays: it is late, as always. Returns the batch without it: values, d, times, q, marks; how many are held.
  local function set_aside(k, to, found, flat, d, q, ts, times, marks, now, limit)
    local quality, is_changed, held = words(q), false, 0
    local function end_if_due(id, record)
      if record.released or (tonumber(record['until']) or 0) > now then return false end
      board_release(k, to, id, record.since, now, 0, now, limit, '') -- whoever writes to the channel speaks for it
      found[id] = record_of(redis.call('HGET', KEYS[k + 4], string.sub(to.name, -1) .. ':' .. id) or nil)
      return true
    end

    local kept_marks = {}
    for id, word in string.gmatch(marks, '([^:,]+):(%a+)') do
      local record = found[id]
      if not record or record.released or end_if_due(id, record) then
        kept_marks[#kept_marks + 1] = id .. ':' .. word
      else
        record.device_quality = word
        keep(k, to.name, id, record)
      end
    end
    marks = table.concat(kept_marks, ',')

    local kept, pairs_, ms, kept_q = {}, {}, {}, {}
    local next_ms = times ~= '' and string.gmatch(times, '%d+')
    for i = 1, #flat, 2 do
      local id, value, t = flat[i], flat[i + 1], next_ms and tonumber(next_ms()) or ts
      local record, word, is_held = found[id], quality[id], false
      local at = (t == 0 or t > limit) and now or t
      if record and not record.released then end_if_due(id, record) record = found[id] end
      if record and record.released then
        is_changed = true
        local released, said = tonumber(record.released), tonumber(record.device_ts) or 0
        if at > released or released > limit then
          redis.call('HDEL', KEYS[k + 4], string.sub(to.name, -1) .. ':' .. id)
          found[id] = nil
        elseif t == 0 or at > said or said > limit then
          record.device_ts, t = int(at), tonumber(record.released)
          keep(k, to.name, id, record)
        end
      elseif record then
        is_changed = true
        -- Times after the limit are from before the clock was set back: they say nothing.
        local since, said = tonumber(record.since) or 0, tonumber(record.device_ts) or 0
        local is_now = t == 0 or t > limit
        is_held = is_now or at >= since or since > limit
        if is_now or at >= said or said > limit then
          record.device_value, record.device_ts = value, int(at)
          record.device_quality = word or t > limit and 'uncertain' or 'good'
        end
        if is_held then record.held = int((tonumber(record.held) or 0) + 1) end
        keep(k, to.name, id, record)
      end
      if is_held then
        held = held + 1
      else
        kept[#kept + 1] = id
        kept[#kept + 1] = value
        pairs_[#pairs_ + 1], ms[#ms + 1] = id .. ':' .. value, int(t)
        if word then kept_q[#kept_q + 1] = id .. ':' .. word end
      end
    end
    if not is_changed then return flat, d, ts, times, q, marks, 0 end
    local is_one = true
    for i = 2, #ms do is_one = is_one and ms[i] == ms[1] end
    if is_one and #ms > 0 then ts, times = tonumber(ms[1]), '' else ts, times = 0, table.concat(ms, ',') end
    return kept, table.concat(pairs_, ','), ts, times, table.concat(kept_q, ','), marks, held
  end

  -- `begun`: hashes that this very call has written, whose mark it has set.
  local function put(k, a, now, limit, mode, is_cluster, stream, sums, begun)
    local name, channel, ts, times, d, q = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3], ARGV[a + 4], ARGV[a + 6]
    local origin, nonce = ARGV[a + 8], ARGV[a + 10]
    local newest, last = string.match(redis.call('GET', KEYS[k + 3]) or '', '^(%d+) (.*)$')
    local function add(accepted, late, duplicates, equal, clamped, replaced)
      sums[1], sums[2], sums[3] = sums[1] + accepted, sums[2] + late, sums[3] + duplicates
      sums[4], sums[5], sums[6] = sums[4] + equal, sums[5] + clamped, sums[6] + replaced
    end
    if last == nonce and not begun[KEYS[k + 3]] then
      if d ~= '' then add(#cmsgpack.unpack(ARGV[a + 5]) / 2, 0, 0, 0, 0, 0) end
      return
    end
    local marks, flat = ARGV[a + 7], d ~= '' and cmsgpack.unpack(ARGV[a + 5]) or {}
    if KEYS[k + 4] ~= KEYS[k] and redis.call('EXISTS', KEYS[k + 4]) == 1 then
      local to = { name = name, channel = channel, mode = mode, is_cluster = is_cluster, stream = stream }
      local found, held = substitutions(KEYS[k + 4], name), 0
      if found then
        flat, d, ts, times, q, marks, held = set_aside(k, to, found, flat, d, q, ts, times, marks, now, limit)
        sums[7] = sums[7] + held
        newest = string.match(redis.call('GET', KEYS[k + 3]) or '', '^(%d+) ')
      end
    end
    local changed = marks ~= '' and mark_only(KEYS[k + 2], marks) or ''
    if d == '' then
      if changed ~= '' then feed(stream, name, int(ts > 0 and ts < now and ts or now), '', changed, '', false, origin) end
      return
    end
    newest = tonumber(newest) or newest_of(KEYS[k + 1])
    begun[KEYS[k + 3]] = true
    local is_event = (ts > 0 or times ~= '') and origin ~= 'modsrv' -- a program or device said when
    local given = ts
    if ts == 0 then ts = now end
    if times == '' and ts > newest and ts <= limit then
      local ms, n = int(ts), #flat
      each('HSET', KEYS[k], flat, n)
      for i = 2, n, 2 do flat[i] = ms end
      each('HSET', KEYS[k + 1], flat, n)
      local has_marks = redis.call('EXISTS', KEYS[k + 2]) == 1
      if has_marks or q ~= '' then
        local quality, good, poor = words(q), {}, {}
        for i = 1, n, 2 do
          local id = flat[i]
          local word = quality[id]
          if word then poor[#poor + 1] = id poor[#poor + 1] = word else good[#good + 1] = id end
        end
        if has_marks then each('HDEL', KEYS[k + 2], good, #good) end
        each('HSET', KEYS[k + 2], poor, #poor)
      end
      redis.call('SET', KEYS[k + 3], ms .. ' ' .. nonce)
      if changed ~= '' then q = q == '' and changed or q .. ',' .. changed end
      feed(stream, name, ms, d, q, '', false, origin, is_event)
      publish(channel, mode, is_cluster, d)
      add(n / 2, 0, 0, 0, 0, 0)
      return
    end

    local s = sift(k, flat, q, given, times, now, limit, newest)
    each('HSET', KEYS[k], s.flat, #s.flat)
    each('HSET', KEYS[k + 1], s.flat_ts, #s.flat_ts)
    each('HDEL', KEYS[k + 2], s.good, #s.good)
    each('HSET', KEYS[k + 2], s.poor, #s.poor)
    if s.newest > limit then s.newest = newest_of(KEYS[k + 1]) end
    redis.call('SET', KEYS[k + 3], int(s.newest) .. ' ' .. nonce)
    if changed ~= '' then s.q[#s.q + 1] = changed end
    if s.accepted > 0 then
      local top, differing = joined(s.ms)
      local text = table.concat(s.pairs, ',')
      feed(stream, name, top, text, table.concat(s.q, ','), differing, false, origin, is_event, s.replaced > 0)
      publish(channel, mode, is_cluster, text)
    elseif changed ~= '' then
      feed(stream, name, int(now), '', changed, '', false, origin)
    end
    if #s.late > 0 then
      local top, differing = joined(s.late_ms)
      feed(stream, name, top, table.concat(s.late, ','), table.concat(s.late_q, ','), differing, true, origin)
    end
    add(s.accepted, #s.late, s.duplicates, s.equal, s.clamped, s.replaced)
  end

  board_write = function(k, a)
    local now = tonumber(ARGV[a])
    if not now then
      local t = redis.call('TIME')
      now = t[1] * 1000 + math.floor(t[2] / 1000)
    end
    local sums, begun = { 0, 0, 0, 0, 0, 0, 0 }, {}
    for b = 0, tonumber(ARGV[a + 4]) - 1 do
      local keys, args = k + 1 + 5 * b, a + 5 + 11 * b
      put(keys, args, now, now + tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3] == '1', KEYS[k], sums, begun)
      if ARGV[args + 9] ~= '0' then
        for i = 0, 3 do redis.call('PEXPIRE', KEYS[keys + i], ARGV[args + 9]) end
      end
    end
    return sums
  end
end

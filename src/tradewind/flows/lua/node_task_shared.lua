-- Shared by the node task scripts. Keys built: none. ARGV 1 key prefix, 2 now in ms ('' = the server's clock).
-- A record is edited as text, member by member: cjson would turn an empty list of a node's config into an object and
-- round its numbers.
local P = ARGV[1]
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end

-- `2026-11-16T00:00:00.000Z`; the date by Hinnant's days to civil, from 0000-03-01.
local function iso(ms)
  local day = math.floor(ms / 86400000)
  local rest = ms - day * 86400000
  local z = day + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', yoe + era * 400 + (month <= 2 and 1 or 0), month,
    doy - math.floor((153 * mp + 2) / 5) + 1, math.floor(rest / 3600000), math.floor(rest / 60000) % 60,
    math.floor(rest / 1000) % 60, rest % 1000)
end
-- Seconds as Python writes a float: `1633024800.0`.
local function seconds(ms)
  return (string.gsub(string.format('%d.%03d', math.floor(ms / 1000), ms % 1000), '(%.%d%d-)0+$', '%1'))
end

-- Where the string that opens at `at` closes.
local function closing(text, at)
  while true do
    at = string.find(text, '["\\]', at + 1)
    if not at or string.byte(text, at) == 34 then return at or #text end
    at = at + 1
  end
end

-- A JSON object's text as {names in order, name → value as JSON}.
local function members(text)
  local names, raw, at = {}, {}, (string.find(text, '{', 1, true) or #text) + 1
  while true do
    local _, quote = string.find(text, '^[%s,]*"', at)
    if not quote then return { names = names, raw = raw } end
    local close = closing(text, quote)
    local name = string.sub(text, quote + 1, close - 1)
    local _, before = string.find(text, '^%s*:%s*', close + 1)
    if not before then return { names = names, raw = raw } end
    local depth, stop = 0, before + 1
    while true do
      stop = string.find(text, '[%[%]{}",]', stop)
      if not stop then
        stop = #text + 1
        break
      end
      local c = string.sub(text, stop, stop)
      if c == '"' then
        stop = closing(text, stop)
      elseif c == '{' or c == '[' then
        depth = depth + 1
      elseif depth == 0 then
        break
      elseif c ~= ',' then
        depth = depth - 1
      end
      stop = stop + 1
    end
    if not raw[name] then names[#names + 1] = name end
    raw[name] = string.match(string.sub(text, before + 1, stop - 1), '^(.-)%s*$')
    at = stop
  end
end
local function put(record, name, value)
  if not record.raw[name] then record.names[#record.names + 1] = name end
  record.raw[name] = value
end
local function text_of(record)
  local parts = {}
  for i, name in ipairs(record.names) do parts[i] = '"' .. name .. '":' .. record.raw[name] end
  return '{' .. table.concat(parts, ',') .. '}'
end
-- The text of a string member that needs no escapes.
local function word(record, name) return record and string.match(record.raw[name] or '', '^"(.*)"$') end

-- The hash counts, if the two differ.
local function status_of(state_key, record) return redis.call('HGET', state_key, 'status') or word(record, 'status') end
-- Whether `list`, words between spaces, has the word.
local function has(list, what) return string.find(list, ' ' .. what .. ' ', 1, true) ~= nil end

-- The one way to write: record (if any) and state, both for `ttl` ms more.
local function write(record_key, state_key, record, status, error_message, ttl)
  if record then
    put(record, 'status', '"' .. status .. '"')
    put(record, 'updated_at', '"' .. iso(now) .. '"')
    redis.call('SET', record_key, text_of(record), 'PX', ttl)
  end
  redis.call('HSET', state_key, 'status', status, 'updated_at', seconds(now), 'error_message', error_message)
  redis.call('PEXPIRE', state_key, ttl)
end

#!lua flags=no-writes
-- A part of a list of alarms, newest first; looks at a bounded number of them.
-- KEYS 1 alarm:order:{name}
-- ARGV 1 key prefix 2 highest ms ('+inf') 3 lowest ms ('-inf') 4 ms of the last one seen ('' = from the beginning) 5 its id 6 how
--   many to find 7 how many to look at 8 filters as JSON: status, level, category, source, rule_id → list of words; a source that
--   ends in * is a beginning
-- Returns {ms and id of the last one looked at ('' = the end was reached), then each alarm as HGETALL gives it}.
local A, high, low, last_ms, last_id = ARGV[1] .. 'alarm:', ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local want, look, filters = tonumber(ARGV[6]), tonumber(ARGV[7]), cjson.decode(ARGV[8])
local FIELDS = { status = 'status', level = 'level', category = 'category', source = 'source_point', rule_id = 'rule_id' }

local names, checks = {}, {}
for word, wanted in pairs(filters) do
  names[#names + 1] = FIELDS[word]
  local words, heads = {}, {}
  for _, w in ipairs(wanted) do
    if word == 'source' and string.sub(w, -1) == '*' then heads[#heads + 1] = string.sub(w, 1, -2) else words[w] = true end
  end
  checks[#names] = function(value)
    if words[value] then return true end
    for _, head in ipairs(heads) do if string.sub(value or '', 1, #head) == head then return true end end
    return false
  end
end

local function fits(id)
  if #names == 0 then return true end
  local values = redis.call('HMGET', A .. id, unpack(names))
  for i, check in ipairs(checks) do if not check(values[i]) then return false end end
  return true
end

-- From the place of the last one, or where it stood if it has left the list: many may have the same time.
local function place_after()
  local rank = redis.call('ZSCORE', KEYS[1], last_id) == last_ms and redis.call('ZREVRANK', KEYS[1], last_id)
  if rank then return rank + 1 end
  local from, to = redis.call('ZCOUNT', KEYS[1], '(' .. last_ms, '+inf'), redis.call('ZCOUNT', KEYS[1], last_ms, '+inf')
  while from < to do
    local middle = math.floor((from + to) / 2)
    if redis.call('ZRANGE', KEYS[1], middle, middle, 'REV')[1] > last_id then from = middle + 1 else to = middle end
  end
  return from
end
local ids
if last_ms ~= '' then
  local from = place_after()
  ids = redis.call('ZRANGE', KEYS[1], from, from + look - 1, 'REV', 'WITHSCORES')
else
  ids = redis.call('ZRANGE', KEYS[1], high, low, 'BYSCORE', 'REV', 'LIMIT', 0, look, 'WITHSCORES')
end
local found, at, is_end = {}, { '', '' }, #ids < 2 * look
for n = 1, #ids, 2 do
  local id, ms = ids[n], ids[n + 1]
  if low ~= '-inf' and tonumber(ms) < tonumber(low) then is_end = true break end
  at = { ms, id }
  if fits(id) then
    local flat = redis.call('HGETALL', A .. id)
    if #flat > 0 then found[#found + 1] = flat end
    if #found == want then is_end = is_end and n + 2 > #ids break end
  end
end
if is_end then at = { '', '' } end
return { at[1], at[2], found }

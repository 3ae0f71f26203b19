#!lua flags=no-writes
-- Find how far the oldest entries of a feed must go to free some bytes, and who has not read them. Changes nothing.
-- KEYS 1 points:feed
-- ARGV 1 bytes to free 2 entries to look at 3 bytes of an entry on average, then pairs: consumer, its cursor
-- Returns {id of the first entry that stays, {per consumer: entries before that which it has not read}}; {false, {}} for an empty feed.
local function parts(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end
local behind, counts = {}, {}
for i = 5, #ARGV, 2 do
  local ms, number = parts(ARGV[i])
  behind[#behind + 1] = { ms or 0, number or 0 }
  counts[#counts + 1] = 0
end
local free, left, average, from, last = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), '-', nil
while free > 0 and left > 0 do
  local rows = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', math.min(100, left))
  if #rows == 0 then break end
  for _, row in ipairs(rows) do
    if free <= 0 then break end
    local size = 0
    for _, field in ipairs(row[2]) do size = size + #field end
    free, left, last = free - math.max(size, average), left - 1, row[1]
    local ms, number = parts(last)
    for i, cursor in ipairs(behind) do
      if ms > cursor[1] or (ms == cursor[1] and number > cursor[2]) then counts[i] = counts[i] + 1 end
    end
  end
  from = '(' .. last
end
if not last then return { false, {} } end
local ms, number = parts(last)
return { string.format('%.0f-%.0f', ms, number + 1), counts }

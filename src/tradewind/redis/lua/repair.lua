-- Shared by the repair scripts of all rooms: faults of indexes are collected while reading, and mended at the end, all at once.
-- wrong(flag, key, what, …): a fault of that key; what follows mends it: commands as tables, or functions. Flags:
--   m it follows from the records: the sweep of the room mends it, and `doctor --repair`
--   t what is left of a record that has expired: the same, but nothing to be told of
--   d the record is lost: only a person may give it up, by `doctor --repair`
--   n nothing here says what it should be: it is only named
--   ? no fault: a question for the caller, `key` what is asked, `what` of whom
-- A member that is to be taken out and has left since the caller saw it is no fault.
-- finish(mode): mode look changes nothing, sweep mends m and t, repair also d. Returns flat: key, what, flag of each.
local wrong, finish
do
  local found, todo = {}, {}
  local MENDS = { look = '', sweep = 'mt', repair = 'mtd' }
  local function has_left(c)
    if type(c) ~= 'table' then return false end
    if c[1] == 'SREM' then return redis.call('SISMEMBER', c[2], c[3]) == 0 end
    if c[1] == 'HDEL' then return redis.call('HEXISTS', c[2], c[3]) == 0 end
    if c[1] == 'ZREM' then return not redis.call('ZSCORE', c[2], c[3]) end
    return c[1] == 'LREM' and not redis.call('LPOS', c[2], c[4])
  end
  wrong = function(flag, key, what, ...)
    if has_left((...)) then return end
    found[#found + 1], found[#found + 2], found[#found + 3] = key, what, flag
    for i = 1, select('#', ...) do todo[#todo + 1] = { flag, (select(i, ...)) } end
  end
  finish = function(mode)
    for _, t in ipairs(todo) do
      if string.find(MENDS[mode], t[1], 1, true) then
        if type(t[2]) == 'function' then t[2]() else redis.call(unpack(t[2])) end
      end
    end
    return found
  end
end

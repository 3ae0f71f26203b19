#!lua
-- Select a point for one owner and one value, so that only this may be commanded next; or let it go.
-- KEYS 1 cmd:select:{address}
-- ARGV 4 address 5 value ('' = let go) 6 owner 7 ms that the selection lasts
-- Returns {1, ms when it ends}; {0, owner} somebody else has it; letting go: {1} done, {2} nothing was selected.
-- include: command_shared
local held = redis.call('HMGET', KEYS[1], 'owner', 'until')
local owner = held[1] and (tonumber(held[2] or '') or 0) > now and held[1] or nil
if owner and owner ~= ARGV[6] then return { 0, owner } end
local c = { address = ARGV[4], value = ARGV[5], who = ARGV[6] }
if ARGV[5] == '' then
  if not owner then return { 2 } end
  redis.call('DEL', KEYS[1])
  journal('', 'selected', 'released', c, '', '')
  return { 1 }
end
redis.call('HSET', KEYS[1], 'owner', ARGV[6], 'value', ARGV[5], 'until', int(now + ARGV[7]))
redis.call('PEXPIRE', KEYS[1], ARGV[7])
journal('', owner and 'selected' or '', 'selected', c, '', '')
return { 1, now + ARGV[7] }

#!lua flags=allow-oom
-- Let channels go that are ours, and forget leases that ended long ago (of channels that are gone).
-- KEYS 1 points:owners
-- ARGV 1 now in ms ('' = the server's clock) 2 owner 3 ms after its end that a lease is forgotten, then channel ids
-- Returns how many were ours or forgotten.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local released = {}
for i = 4, #ARGV do released[ARGV[i]] = true end
local gone = {}
local leases = redis.call('HGETALL', KEYS[1])
for i = 1, #leases, 2 do
  local owner, ends = string.match(leases[i + 1], '^(.*):(%d+)$')
  local is_old = not owner or tonumber(ends) + ARGV[3] <= now
  if is_old or (released[leases[i]] and owner == ARGV[2]) then gone[#gone + 1] = leases[i] end
end
for _, id in ipairs(gone) do redis.call('HDEL', KEYS[1], id) end
return #gone

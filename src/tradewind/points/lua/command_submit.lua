#!lua
-- Accept one command: record, place in its channel's queue, entry in the list of its model. Consumes a selection.
-- KEYS 1 cmd:{id} 2 cmd:list:{model} 3 comsrv:{channel}:todo 4 cmd:open 5 cmd:select:{address} 6 cmd:key:{key} (any, without a key)
-- ARGV 4 id 5 how many may wait 6 ms that the record lives 7 sha1 of the request ('' = no key) 8 '1' = must be selected
--   9 ms until it expires, then the fields of the record: name, value, …
-- Returns {1, now}; {2, id} the key has brought it in already; {-1, id} the key belongs to another request;
--   {-2, n} so many wait already; {-3, owner} somebody else has selected the point; {-4} it is not selected; {-5, value} it is
--   selected for another value.
-- include: command_shared
local id = ARGV[4]
if ARGV[7] ~= '' then
  local known = redis.call('GET', KEYS[6])
  if known then
    local sha, owner = string.match(known, '^(%S+) (%S+)$')
    return { sha == ARGV[7] and 2 or -1, owner }
  end
end
if redis.call('EXISTS', KEYS[1]) == 1 then return { 2, id } end -- the first reply was lost
local waiting = redis.call('LLEN', KEYS[3])
if waiting >= tonumber(ARGV[5]) then return { -2, waiting } end

local f = {}
for at = 10, #ARGV, 2 do f[ARGV[at]] = ARGV[at + 1] end
local selected = redis.call('HMGET', KEYS[5], 'owner', 'value', 'until')
if selected[1] and (tonumber(selected[3] or '') or 0) <= now then selected[1] = false end
if selected[1] then
  if selected[1] ~= f.who then return { -3, selected[1] } end
  if selected[2] ~= f.value then return { -5, selected[2] } end
elseif ARGV[8] == '1' then
  return { -4 }
end

local expires = int(now + ARGV[9])
redis.call('DEL', KEYS[5])
redis.call('HSET', KEYS[1], 'id', id, 'created_at', NOW, 'expires_ms', expires, 'select', selected[1] and '1' or '',
  unpack(ARGV, 10))
local c = { status = '', address = f.address, value = f.value, source = f.source, who = f.who, reason = f.reason }
move(id, c, 'pending', '', f.message)
redis.call('PEXPIRE', KEYS[1], ARGV[6])
if ARGV[7] ~= '' then redis.call('SET', KEYS[6], ARGV[7] .. ' ' .. id, 'PX', ARGV[6]) end
redis.call('LPUSH', KEYS[2], id)
redis.call('LTRIM', KEYS[2], 0, 999)
redis.call('LPUSH', KEYS[3], id)
redis.call('ZADD', KEYS[4], expires, id)
return { 1, now }

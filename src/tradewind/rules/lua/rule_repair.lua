#!lua
-- Compare the indexes of rules and groups with the records, and bring them back to what these say; whoever judges reads them anew.
-- KEYS 1 rulesrv:rules
-- ARGV 1 key prefix 2 mode 3 number of entries of indexes, per entry the key without the prefix, the member, its value; then names of
--   records
-- Keys built here: rulesrv:rule:{id}, rulesrv:group:{id}, rulesrv:group:{id}:rules, rulesrv:groups, rulesrv:version.
-- Returns what redis/repair.lua says.
-- include: redis/repair
local P = ARGV[1] .. 'rulesrv:'
local version = redis.call('GET', P .. 'version')
local is_counted = not version or string.match(version, '^%d+$')
if not is_counted then wrong('n', P .. 'version', 'is no number: no rule can be changed. Set it to a number that it has not had') end
local function notice() if is_counted then redis.call('INCR', P .. 'version') end end
local function document(key)
  local text = redis.pcall('GET', P .. key)
  if type(text) ~= 'string' then return nil end
  local is_json, found = pcall(cjson.decode, text)
  return is_json and type(found) == 'table' and found or {}, not (is_json and type(found) == 'table')
end

local at = 4
for _ = 1, tonumber(ARGV[3]) do
  local name, member = ARGV[at], ARGV[at + 1]
  local key = ARGV[1] .. name
  local group = string.match(name, '^rulesrv:group:(.+):rules$')
  if member == '' and ARGV[at + 2] == '#' then
    member = nil
  elseif group then
    local rule = document('rule:' .. member)
    if not rule or rule.group_id ~= group then
      wrong('m', key, rule and 'has rule ' .. member .. ' which is not of this group' or 'names rule ' .. member .. ' which has no record',
        { 'SREM', key, member }, notice)
    end
  elseif redis.call('EXISTS', P .. (name == 'rulesrv:rules' and 'rule:' or 'group:') .. member) == 0 then
    local noun = name == 'rulesrv:rules' and 'rule ' or 'group '
    wrong('d', key, 'names ' .. noun .. member .. ' which has no record', { 'SREM', key, member }, notice)
  end
  at = at + 3
end
for n = at, #ARGV do
  local kind, id = string.match(ARGV[n], '^rulesrv:(%a+):(.+)$')
  local found, is_broken = document(kind .. ':' .. id)
  local set = P .. kind .. 's'
  if is_broken then wrong('n', P .. kind .. ':' .. id, 'is no JSON object: it is not judged. Write it anew, or remove it') end
  if found then
    if redis.call('SISMEMBER', set, id) == 0 then wrong('m', set, 'misses ' .. kind .. ' ' .. id, { 'SADD', set, id }, notice) end
    local group = kind == 'rule' and found.group_id
    if type(group) == 'string' and group ~= '' and redis.call('EXISTS', P .. 'group:' .. group) == 1 then
      local key = P .. 'group:' .. group .. ':rules'
      if redis.call('SISMEMBER', key, id) == 0 then wrong('m', key, 'misses rule ' .. id, { 'SADD', key, id }, notice) end
    end
  end
end
return finish(ARGV[2])

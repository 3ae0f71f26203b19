#!lua flags=allow-oom
-- What a command owed to its device is done, or somebody has dismissed it: forget it, end its alarm, note it in the journal.
-- KEYS 1 cmd:owed 2 cmd:effects 3 station:faults 4 comsrv:{channel}:outcomes
-- ARGV 4 address 5 id of the command 6 value that the point stands at now ('' = not known) 7 message 8 who 9 kind:id of the point
--   10 reports that may wait
-- Returns {1, ms}; {0} that command owes nothing there.
-- include: command_shared
local owed = redis.call('HGET', KEYS[1], ARGV[4])
local is_told, id = string.match(owed or '', '^%d+ (%d) (%S+) ')
if id ~= ARGV[5] then return { 0 } end
redis.call('HDEL', KEYS[1], ARGV[4])
if is_told == '1' then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[10], '*', 'code', 'output_owed', 'source', ARGV[4], 'level', 'Critical',
    'message', '', 'state', 'clear', 'at', NOW)
end
journal(id, 'owed', ARGV[6] == '' and 'dismissed' or 'released', { address = ARGV[4], value = ARGV[6] }, '', ARGV[7], ARGV[8])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[2], id, ARGV[4] .. ' ' .. ARGV[6] .. ' ' .. NOW)
  local is_read, outcome = pcall(cjson.decode, redis.call('HGET', KEYS[4], ARGV[9]) or '')
  if is_read and type(outcome) == 'table' and outcome.unsure == id then
    outcome.unsure = ''
    redis.call('HSET', KEYS[4], ARGV[9], cjson.encode(outcome))
  end
end
return { 1, now }

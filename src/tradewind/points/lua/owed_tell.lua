#!lua flags=allow-oom
-- Report a fault of the station for everything that is owed to a device and past its time, once each; owed_done clears it. What
-- such a point stands at is not known until then.
-- KEYS 1 cmd:owed 2 station:faults
-- ARGV 4 reports that may wait, then addresses whose time is over whatever the clock says
-- Returns the addresses that were reported now.
-- include: command_shared
local late, told = {}, {}
for i = 5, #ARGV do late[ARGV[i]] = true end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local address, due, is_told, id, rest = all[i], string.match(all[i + 1], '^(%d+) (%d) (%S+) (.*)$')
  if is_told == '0' and (late[address] or tonumber(due) <= now) then
    redis.call('HSET', KEYS[1], address, due .. ' 1 ' .. id .. ' ' .. rest)
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'code', 'output_owed', 'source', address, 'level', 'Critical',
      'message', address .. ' may still be on: its release is owed to the device since command ' .. id
      .. ' and has not been confirmed', 'state', 'raise', 'at', NOW)
    doubt(id, address)
    told[#told + 1] = address
  end
end
return told

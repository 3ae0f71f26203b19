#!lua flags=allow-oom
-- Cancel a command that waits.
-- KEYS 1 cmd:{id}
-- ARGV 4 id 5 who cancels 6 message
-- Returns {1} it is cancelled (also when it was before), {0, status} too late, {-1} unknown, {-2, why} its record cannot be read.
-- include: command_shared
local c = read(ARGV[4])
if redis.call('EXISTS', KEYS[1]) == 0 then return { -1 } end
if c.fault then return { -2, c.fault } end
if c.status == 'cancelled' then return { 1 } end
if c.status ~= 'pending' then return { 0, c.status } end
close(ARGV[4], c, 'cancelled', 'cancelled', ARGV[6], ARGV[5])
return { 1 }

#!lua flags=allow-oom
-- Hold the right to restore: take it, renew it, or give it back.
-- KEYS 1 station:restoring
-- ARGV 1 token 2 ms that it lasts (0 = give it back)
-- Returns 1 it is ours (or was, and is given back); 0 somebody else has it.
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return 0 end
if tonumber(ARGV[2]) == 0 then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return 1

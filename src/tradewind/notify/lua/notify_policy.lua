#!lua
-- Replace the notification policy unless somebody else did so meanwhile.
-- KEYS 1 notify:policy
-- ARGV 1 the policy that the caller has looked at ('' = none) 2 the new one
-- Returns 1 stored, also when it was stored before; 0 somebody else was faster, nothing is changed.
local now = redis.call('GET', KEYS[1]) or ''
if now == ARGV[2] then return 1 end
if now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1

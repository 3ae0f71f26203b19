#!lua
-- Note something in the journal of a release, if it is still that one.
-- KEYS 1 release:journal
-- ARGV 1 id 2 '1' = the journal goes, then pairs field, value
-- Returns 1; 0 another release has taken over, or there is none.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 0 end
for at = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
if ARGV[2] == '1' then redis.call('UNLINK', KEYS[1]) end
return 1

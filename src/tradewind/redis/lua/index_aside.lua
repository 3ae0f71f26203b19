#!lua flags=allow-oom
-- Set a value aside that stands where an index should be and has another type, so that the index can be made anew.
-- KEYS 1 the index 2 where the value goes. ARGV 1 type that the index has 2 ms that the value is kept
-- Returns the type that was found, '' when there is nothing to do (any more).
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == ARGV[1] then return '' end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return kind

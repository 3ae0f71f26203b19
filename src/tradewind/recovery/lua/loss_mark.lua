#!lua flags=allow-oom
-- Mark that Redis has lost the data of the station, and report it as a fault, both once.
-- KEYS 1 station:id 2 station:loss 3 station:faults
-- ARGV 1 the mark as JSON 2 code 3 source 4 level 5 message 6 now in ms
-- Returns 1 marked; 0 it was marked before, or the station id is there.
if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'code', ARGV[2], 'source', ARGV[3], 'level', ARGV[4], 'message', ARGV[5],
  'state', 'raise', 'at', ARGV[6])
return 1

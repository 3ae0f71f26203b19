#!lua flags=allow-oom
-- The data of the station are back: it has its id again, the fault is over, and the rules are judged by a new term, which reads
-- the open alarms that were restored.
-- KEYS 1 station:id 2 station:loss 3 station:faults 4 rulesrv:leader
-- ARGV 1 station id 2 code 3 source 4 message 5 now in ms
-- Returns 1; 0 when Redis has an id already.
redis.call('DEL', KEYS[2])
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[4])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'code', ARGV[2], 'source', ARGV[3], 'level', 'Critical', 'message', ARGV[4],
  'state', 'clear', 'at', ARGV[5])
return 1

#!lua flags=allow-oom
-- Cancel tasks. What has not started ends now; what runs is asked to stop (flag and message to its worker).
-- KEYS 1 queue:delayed 2 task:marked
-- ARGV 6 ms that the flag of a running task outlives its attempt 7 default timeout ms, then ids
-- Also touches: worker:{id}:queue. Channel: worker:{id}:control.
-- Returns per task: {1, 'CANCELLED'} ended now, {2, 'PROCESSING'} asked to stop, {0, status} had ended before
--   (but {1, 'CANCELLED'} again for a cancelled one: the first reply may have been lost), {-1} unknown.
-- include: shared
-- include: cancel
local answer = {}
for at = 8, #ARGV do answer[#answer + 1] = { cancel(ARGV[at], tonumber(ARGV[6]), ARGV[7]) } end
settle()
return answer

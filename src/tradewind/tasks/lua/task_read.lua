#!lua flags=no-writes
-- Read tasks. KEYS 1 task:token (routes the call only). ARGV 1 key prefix, then ids
-- Returns per task {fields and values…, body} as {hash flat, body or ''}; {} for an unknown one.
local answer = {}
for at = 2, #ARGV do
  local key = ARGV[1] .. 'task:' .. ARGV[at]
  local hash = redis.call('HGETALL', key)
  answer[#answer + 1] = #hash > 0 and { hash, redis.call('GET', key .. ':body') or '' } or {}
end
return answer

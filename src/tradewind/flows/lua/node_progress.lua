#!lua flags=allow-oom
-- How far a running node is, in the seed's record of it. KEYS 1 node_tasks:{id} 2 task:{id}. ARGV 1 percent 2 message 3 token
-- Returns 1, or 0 when it is not running under that token.
if redis.call('HGET', KEYS[2], 'tok') ~= ARGV[3] then return 0 end
local text = redis.call('GET', KEYS[1])
if not text then return 0 end
local head, tail = string.match(text, '^(.*),"progress":[%d.]+(,"config":.*)$')
if not head then return 0 end
if ARGV[2] ~= '' then
  local before = string.match(head, '^(.*,"message":)"')
  if before then head = before .. cjson.encode(ARGV[2]) end
end
redis.call('SET', KEYS[1], head .. ',"progress":' .. ARGV[1] .. tail, 'KEEPTTL')
return 1

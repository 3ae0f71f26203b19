#!lua flags=allow-oom
-- A worker commits how its tasks ended. Only the token that stands in the worker's in-flight set counts.
-- KEYS 1 worker:{id}:inflight 2 queue:delayed 3 queue:high 4 queue:normal 5 queue:parked 6 task:marked
-- ARGV 6 worker id, then per task: id, token, type, SUCCESS|FAILED|DEAD|TIMEOUT|CANCELLED|RETRYING, request line, outcome line,
--   ms until the retry, short error text
-- Returns per task: 1 committed, 2 already committed by this token, 0 refused (reassigned, cancelled or gone).
-- A cancel that was asked for turns FAILED and RETRYING into CANCELLED; a success stays one.
-- include: shared
local STRIDE, FROM = 8, 7
local worker, answer, ids, retries = ARGV[6], {}, {}, 0
for at = FROM, #ARGV, STRIDE do ids[#ids + 1] = ARGV[at] end
local tokens, marked = redis.call('ZMSCORE', KEYS[1], unpack(ids)), redis.call('SMISMEMBER', KEYS[6], unpack(ids))
local gone = {}
for i = 1, #ids do
  local at = FROM + (i - 1) * STRIDE
  local id, kind, status = ids[i], ARGV[at + 2], ARGV[at + 3]
  if tokens[i] == ARGV[at + 1] then
    gone[#gone + 1] = id
    local more = NOTHING
    if marked[i] == 1 then
      more = rare(id, '1')
      local asked = redis.call('DEL', P .. 'task:cancel:' .. id) == 1
      if asked and status ~= 'SUCCESS' then status = 'CANCELLED' end
    elseif status ~= 'SUCCESS' and redis.call('DEL', P .. 'task:cancel:' .. id) == 1 then
      status = 'CANCELLED' -- a flag that was set by hand, as in the seed
    end
    if status == 'RETRYING' then
      local key, due = T .. id, now + tonumber(ARGV[at + 6])
      redis.call('HSET', key, 'status', 'RETRYING', 'due', int(due), 'err', ARGV[at + 7], 'x', '1')
      redis.call('ZADD', KEYS[2], string.format('%.3f', due / 1000), id)
      if more.c then uncache(id) end
      if more.lock then unlock(more.lock, worker) end
      count('retrying', 1)
      retries = retries + 1
      announce('retrying', id, kind)
    else
      close(id, status, kind, more, nil, ARGV[at + 4] .. '\n' .. ARGV[at + 5])
    end
    answer[i] = 1
  else
    local f = fields(T .. id, 'status', 'tok')
    answer[i] = f[2] == ARGV[at + 1] and f[1] ~= 'PROCESSING' and 2 or 0 -- whoever else ends an attempt resets tok
  end
end
push('ZREM', KEYS[1], gone)
settle()
if retries > 0 or (#gone > 0 and (redis.call('LLEN', KEYS[4]) > 0 or redis.call('LLEN', KEYS[3]) > 0
    or redis.call('EXISTS', KEYS[5]) == 1)) then wake() end
return answer

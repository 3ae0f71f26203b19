#!lua flags=allow-oom
-- End a command that is being carried out. What the board must show is noted as due; on success a model's control is written.
-- KEYS 1 cmd:{id} 2 cmd:effects 3 modsrv:{model}:control (of any model when there is none)
-- ARGV 4 id 5 token 6 status 7 result 8 message 9 value read back ('' = none) 10 value for the board ('' = none)
--   11 field of the model ('' = no model) 12 pub/sub channel of its controls
-- Returns {1, ms} it ended so; {0, status} it had ended before, the late answer is in the journal; {-1} unknown.
-- include: command_shared
local id = ARGV[4]
local c = read(id)
if not c.status then return { -1 } end
if c.token ~= ARGV[5] then return { 0, c.status } end
if c.status ~= 'executing' then
  if c.status == ARGV[6] and c.result == ARGV[7] then return { 1, tonumber(redis.call('HGET', KEYS[1], 'updated_at')) or now } end
  journal(id, c.status, c.status, c, 'late', 'came too late: ' .. ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[8])
  return { 0, c.status }
end
if ARGV[9] ~= '' then redis.call('HSET', KEYS[1], 'actual', ARGV[9]) end
if ARGV[11] ~= '' then
  redis.call('HSET', KEYS[3], ARGV[11], c.value .. ':' .. NOW .. ':' .. (c.source or ''))
  redis.call('PUBLISH', ARGV[12], ARGV[11] .. ':' .. c.value)
end
close(id, c, ARGV[6], ARGV[7], ARGV[8], nil, ARGV[10] ~= '')
if ARGV[10] ~= '' then redis.call('HSET', KEYS[2], id, c.address .. ' ' .. ARGV[10] .. ' ' .. NOW) end
return { 1, now }

#!lua flags=allow-oom
-- A worker gives tasks back that it will not run: its whole queue when it drains, and the named running ones.
-- They go to the head of their queues. The attempt does not count, or it counts as a stall: the worker knows of no run and
-- no ending, so nobody can tell what the attempt did; too many of those end it DEAD. One that was asked to stop ends CANCELLED.
-- KEYS 1 worker:{id} 2 worker:{id}:inflight
-- ARGV 6 worker id 7 generation 8 '1' = its queue too 9 most stalls ('' = the attempt does not count), then pairs id, token
--   ('' = whatever token it has)
-- Also touches: worker:{id}:queue, queue:high, queue:normal, queue:parked:{priority}:{route}.
-- Returns how many went back.
-- include: shared
-- include: requeue
local worker, most = ARGV[6], tonumber(ARGV[9])
if redis.call('HGET', KEYS[1], 'gen') ~= ARGV[7] then return 0 end
local entries, gone = {}, {}
for at = 10, #ARGV, 2 do
  local id, token = ARGV[at], ARGV[at + 1]
  local f = fields(T .. id, 'status', 'worker', 'tok', 'pri', 'c', 'n', 'lock', 'type', 'wait', 'lab', 'hook', 'stalls')
  if f[1] == 'PROCESSING' and f[2] == worker and (token == '' or f[3] == token) then
    gone[#gone + 1] = id
    if f[7] then unlock(f[7], worker) end
    if redis.call('DEL', P .. 'task:cancel:' .. id) == 1 then
      close(id, 'CANCELLED', f[8], { c = f[5], wait = f[9], hook = f[11] }, '{"error":{"type":"Cancelled","message":"cancelled while it ran"}}')
    else
      local stalls = tonumber(f[12] or '0') + 1
      if most then
        redis.call('HSET', T .. id, 'stalls', stalls, 'x', '1')
      else
        redis.call('HSET', T .. id, 'n', math.max(0, tonumber(f[6] or '1') - 1))
      end
      if most and stalls > most then
        close(id, 'DEAD', f[8], { c = f[5], wait = f[9], hook = f[11] },
          '{"error":{"type":"NoEnding","message":"its worker lost track of it ' .. stalls .. ' times"}}')
      else
        entries[#entries + 1] = { id = id, pri = f[4], c = f[5], place = place_of(f[4], f[8], f[10]) }
      end
    end
  elseif not f[1] then
    gone[#gone + 1] = id -- there is no such task any more
  end
end
push('ZREM', KEYS[2], gone)
if ARGV[8] == '1' then
  for _, e in ipairs((unassign(worker, 0))) do entries[#entries + 1] = e end
end
back(entries)
settle()
if #entries > 0 then wake() end
return #entries

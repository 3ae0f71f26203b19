#!lua
-- Store a round of the rule engine at once: what rules remember, how far the feed is read, and what is to happen. Few steps
-- are carried out here and now; many are put aside for rule_apply, which takes them in this order. So nothing is lost and
-- nothing happens twice, whenever the engine dies.
-- KEYS 1 rulesrv:leader 2 rulesrv:epoch 3 rulesrv:version 4 rulesrv:states 5 points:cursors 6 rulesrv:pending
-- ARGV 1 JSON of script_context.rule_context 2 now in ms ('' = the server's clock) 3 engine id 4 epoch 5 version of the rules 6 name of the
--   round 7 steps carried out here at most 8 number of cursors 9 of states, then per cursor field and value; per state rule id
--   and value; then the steps
-- Returns {1, steps put aside} stored, also when it was stored before; {0} another one judges now; {-1} rules have changed.
-- include: alarms/alarm
-- include: rule_steps
if redis.call('GET', KEYS[1]) ~= ARGV[3] or redis.call('GET', KEYS[2]) ~= ARGV[4] then return { 0 } end
if (redis.call('GET', KEYS[3]) or '0') ~= ARGV[5] then return { -1 } end
local waiting = redis.call('LLEN', KEYS[6])
if redis.call('HGET', KEYS[5], 'rulesrv#round') == ARGV[6] then return { 1, waiting } end
local cursors, states = tonumber(ARGV[8]), tonumber(ARGV[9])
local first = 10 + 2 * cursors + 2 * states
local count = #ARGV - first + 1
if count > 0 and (waiting > 0 or count > tonumber(ARGV[7])) then
  for from = first, #ARGV, 1000 do
    redis.call('RPUSH', KEYS[6], unpack(ARGV, from, math.min(from + 999, #ARGV)))
  end
  waiting = waiting + count
elseif count > 0 then
  local ctx = alarm_context(ARGV[1], ARGV[2])
  for at = first, #ARGV do rule_step(ctx, cmsgpack.unpack(ARGV[at])) end
end
redis.call('HSET', KEYS[5], 'rulesrv#round', ARGV[6])
local at = 10
for c = 0, cursors - 1 do redis.call('HSET', KEYS[5], ARGV[at + 2 * c], ARGV[at + 2 * c + 1]) end
at = at + 2 * cursors
local last = at + 2 * states - 1
for from = at, last, 4000 do redis.call('HSET', KEYS[4], unpack(ARGV, from, math.min(from + 3999, last))) end
return { 1, waiting }

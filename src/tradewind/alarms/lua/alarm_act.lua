#!lua
-- An operator's action on alarms. What is so already stays as it is; what B-15 forbids is refused, each by itself.
-- KEYS 1 alarm:nonce:{nonce}
-- ARGV 1 context as JSON 2 now in ms ('' = the server's clock) 3 acknowledge|resolve|suppress|shelve|unshelve|escalate|close
--   4 who 5 note 6 version that it must have ('' = any) 7 ms to shelve, or @ and ms since 1970 of its end, then ids. An end that
--   would move by less than 5 s or a hundredth of the time to shelve stays: the caller asks again
-- Returns JSON, per id {code, status, version}: 1 done, 0 it was so, -1 unknown id, -2 forbidden, -3 another version.
-- include: alarm
local before = redis.call('GET', KEYS[1])
if before then return before end -- a repeat after a lost reply
local ctx = alarm_context(ARGV[1], ARGV[2])
local action, who, note, wanted = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local stamp = alarm_iso(ctx.now)
local length = tonumber(ARGV[7])
local shelf_end = string.match(ARGV[7], '^@(%d+)$') or string.format('%.0f', ctx.now + length)

local function is_shelved_so(h)
  local ends = tonumber(h.shelved_until)
  if not ends or not length then return h.shelved_until == shelf_end end
  return ends > ctx.now and math.abs(tonumber(shelf_end) - ends) < math.max(5000, length / 100)
end

-- Per action: the status that it leads to, or nil if forbidden, '' if it is so already; fields to set, fields to drop.
local ACTIONS = {
  acknowledge = function(h)
    local set = { acknowledged_by = who, acknowledged_at = stamp }
    if h.status == 'New' or h.status == 'Escalated' then return 'Acknowledged', set end
    if h.status == 'Acknowledged' then return '' end
    if h.status == 'Resolved' then if h.acknowledged_at then return '' end return 'Resolved', set end
  end,
  resolve = function(h)
    if h.status == 'Resolved' then return '' end
    if h.status ~= 'Closed' then return 'Resolved', { resolved_at = stamp } end
  end,
  suppress = function(h)
    if h.status == 'Resolved' or h.status == 'Closed' then return nil end
    if h.held_by then return '' end
    return 'Suppressed', { held_by = who == '' and '-' or who }
  end,
  shelve = function(h)
    if h.status == 'Resolved' or h.status == 'Closed' then return nil end
    if is_shelved_so(h) then return '' end
    return 'Suppressed', { shelved_until = shelf_end }
  end,
  unshelve = function(h)
    if h.status == 'Resolved' or h.status == 'Closed' then return nil end
    if not (h.shelved_until or h.held_by) then return '' end
    return h.cause and 'Suppressed' or 'New', nil, { 'shelved_until', 'held_by' }
  end,
  escalate = function(h)
    if h.status == 'Escalated' then return '' end
    if h.status ~= 'New' and h.status ~= 'Acknowledged' then return nil end
    return 'Escalated', { escalations = tostring((tonumber(h.escalations) or 0) + 1) }, { 'acknowledged_by', 'acknowledged_at' }
  end,
  close = function(h)
    if h.status == 'Closed' then return '' end
    if h.status ~= 'Suppressed' and h.status ~= 'Resolved' then return nil end
    return 'Closed', not h.acknowledged_at and { acknowledged_by = who, acknowledged_at = stamp } or nil
  end,
}
local EVENTS = { acknowledge = 'acknowledged', resolve = 'resolved', suppress = 'suppressed', shelve = 'shelved',
  unshelve = 'unshelved', escalate = 'escalated', close = 'closed' }

local replies = {}
for n = 8, #ARGV do
  local h = alarm_read(ctx, ARGV[n])
  local code = -1
  if h then
    local to, set, drop = ACTIONS[action](h)
    if not to then code = -2
    elseif to == '' then code = 0
    elseif wanted ~= '' and wanted ~= h.version then code = -3
    else
      code = 1
      alarm_move(ctx, h, to, EVENTS[action], who, note, set, drop)
    end
  end
  replies[#replies + 1] = '[' .. code .. ',"' .. (h and h.status or '') .. '",' .. (h and h.version or 0) .. ']'
end
local reply = '[' .. table.concat(replies, ',') .. ']'
redis.call('SET', KEYS[1], reply, 'PX', 300000)
return reply

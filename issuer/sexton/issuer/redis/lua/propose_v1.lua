-- Propose the next generation of each tenant, so that concurrent issuers rarely collide. The log decides.
--
-- KEYS[1]  meta      hash: field "log" holds the id of the log that the projection was built from
-- KEYS[2]  newest    hash: tenant -> "<generation>@<log offset>", the projection
-- KEYS[3]  proposed  hash: tenant -> generation proposed last, not yet seen in the log
-- ARGV[1]  id of the log
-- ARGV[2]  how far proposals may run ahead of the projection before they count as damaged
-- ARGV[3...]  for each tenant: name, "<generation>@<log offset>" of the caller's fold ("" = none)
-- returns  {"ok", supersedes, new, supersedes, new, ...} as texts in the order of ARGV ("0" = none), or
--          {"missing"} when there is no projection, or {"differs", i} when tenant i (from 1) is not in the
--          projection as the caller's fold has it; nothing is proposed then.
-- Numbers here are generations, at most 2^32: exact as doubles. Log offsets are compared as text only.
if redis.call('HGET', KEYS[1], 'log') ~= ARGV[1] then
  return {'missing'}
end
for i = 3, #ARGV, 2 do
  if (redis.call('HGET', KEYS[2], ARGV[i]) or '') ~= ARGV[i + 1] then
    return {'differs', tostring((i - 1) / 2)}
  end
end
local reply = {'ok'}
local ahead = tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local base = tonumber(string.match(ARGV[i + 1], '^(%d+)@') or '0')
  local text = redis.call('HGET', KEYS[3], ARGV[i])
  if text and #text <= 10 and string.match(text, '^%d+$') then
    local proposed = tonumber(text)
    if proposed > base and proposed <= base + ahead then
      base = proposed
    end
  end
  local new = string.format('%.0f', base + 1)
  redis.call('HSET', KEYS[3], ARGV[i], new)
  reply[#reply + 1] = string.format('%.0f', base)
  reply[#reply + 1] = new
end
return reply

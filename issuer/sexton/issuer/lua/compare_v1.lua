-- Compare the projection with a fold: thousands of tenants in one call, one answer for each, in order.
--
-- KEYS[1]  meta    hash: field "log" holds the id of the log that the projection was built from
-- KEYS[2]  newest  hash: tenant -> "<generation>@<log offset>", the projection
-- ARGV[1]  id of the log
-- ARGV[2...]  for each tenant: name, "<generation>@<log offset>" of the caller's fold ("" = none)
-- returns  {answers, raw, raw, ...}: `answers` has one character for each tenant: "=" equal, "?" absent here,
--          "!" different; then the raw value found for each "!", in order. {"missing"} when there is no
--          projection (no list of answers holds that word).
-- One text instead of a list, as a nil would cut a list short and 10,000 elements cost more than the look-ups.
if redis.call('HGET', KEYS[1], 'log') ~= ARGV[1] then
  return {'missing'}
end
local answers, raws = {}, {''}
for start = 2, #ARGV, 2000 do
  local names = {}
  for i = start, math.min(start + 1998, #ARGV - 1), 2 do
    names[#names + 1] = ARGV[i]
  end
  local found = redis.call('HMGET', KEYS[2], unpack(names))
  for j = 1, #names do
    local raw = found[j] or ''
    if raw == ARGV[start + 2 * j - 1] then
      answers[#answers + 1] = '='
    elseif raw == '' then
      answers[#answers + 1] = '?'
    else
      answers[#answers + 1] = '!'
      raws[#raws + 1] = raw
    end
  end
end
raws[1] = table.concat(answers)
return raws

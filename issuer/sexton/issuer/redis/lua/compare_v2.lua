-- Compare the projection with a fold: thousands of tenants in one call, chunk by chunk, each answered in order.
--
-- KEYS[1]  meta    hash: field "log" holds the id of the log that the projection was built from
-- KEYS[2]  newest  hash: tenant -> "<generation>@<log offset>", the projection
-- ARGV[1]  id of the log
-- ARGV[2...]  for each chunk of at most 1,000 tenants: how many, their entries in the caller's fold ("" = none)
--          joined by spaces, their names
-- returns  for each chunk "=" when every entry is equal, else the list of what is here ("" = absent), one for
--          each tenant. {"missing"} when there is no projection.
-- One text for a chunk: as an argument of its own each entry costs more than its look-up. An entry holds no
-- space, so a planted value that does makes the whole longer and never equal.
if redis.call('HGET', KEYS[1], 'log') ~= ARGV[1] then
  return {'missing'}
end
local answers, i = {}, 2
while i < #ARGV do
  local count = tonumber(ARGV[i])
  local found = redis.call('HMGET', KEYS[2], unpack(ARGV, i + 2, i + 1 + count))
  for j = 1, count do
    found[j] = found[j] or ''
  end
  answers[#answers + 1] = table.concat(found, ' ') == ARGV[i + 1] and '=' or found
  i = i + 2 + count
end
return answers

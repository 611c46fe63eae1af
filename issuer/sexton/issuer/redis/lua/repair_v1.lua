-- Set entries of the projection to what the log says, each only if it still holds the value that was seen.
--
-- KEYS[1]  newest    hash: tenant -> "<generation>@<log offset>", the projection
-- KEYS[2]  proposed  hash: tenant -> generation proposed last
-- ARGV     for each tenant: name, the raw value that was seen ("" = none), the value to set ("" = none)
-- returns  the number of entries that were set, as a text
local set = 0
for i = 1, #ARGV, 3 do
  if (redis.call('HGET', KEYS[1], ARGV[i]) or '') == ARGV[i + 1] then
    if ARGV[i + 2] == '' then
      redis.call('HDEL', KEYS[1], ARGV[i])
    else
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
    end
    redis.call('HDEL', KEYS[2], ARGV[i])
    set = set + 1
  end
end
return tostring(set)

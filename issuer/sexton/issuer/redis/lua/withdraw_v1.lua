-- Forget what was proposed for tenants whose event turned out void, so that the next one starts at the log.
--
-- KEYS[1]  proposed  hash: tenant -> generation proposed last
-- ARGV     names of tenants
-- returns  the number of proposals that were forgotten, as a text
local gone = 0
for i = 1, #ARGV do
  gone = gone + redis.call('HDEL', KEYS[1], ARGV[i])
end
return tostring(gone)

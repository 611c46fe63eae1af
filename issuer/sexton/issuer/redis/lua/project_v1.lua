-- Bring the projection up to what a fold has seen. Never backwards: a lagging issuer sets nothing newer back.
--
-- KEYS[1]  newest    hash: tenant -> "<generation>@<log offset>", the projection
-- KEYS[2]  proposed  hash: tenant -> generation proposed last
-- ARGV     for each tenant: name, generation, log offset
-- returns  the number of entries that were written, as a text
-- Log offsets are compared as decimal texts (longer is larger): they may pass 2^53.
local written = 0
for i = 1, #ARGV, 3 do
  local raw = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  local seen = string.match(raw, '^%d+@(%d+)$')
  local offset = ARGV[i + 2]
  if raw == '' or seen and (#seen < #offset or #seen == #offset and seen < offset) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. '@' .. offset)
    written = written + 1
    local proposed = redis.call('HGET', KEYS[2], ARGV[i])
    if proposed and (#proposed < #ARGV[i + 1] or #proposed == #ARGV[i + 1] and proposed <= ARGV[i + 1]) then
      redis.call('HDEL', KEYS[2], ARGV[i])
    end
  end
end
return tostring(written)

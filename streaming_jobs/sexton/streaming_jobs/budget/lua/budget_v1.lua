-- One bucket's budget, shared by all tasks: the rule of aimd.py where it must be atomic. Read that first.
--
-- KEYS[1]  hash of one bucket: low, peak, since, holds_from, free_at, not_before (see aimd.State), as texts
-- ARGV[1]  what to do: "peek", "lease" or "throttled"
-- ARGV[2..16]  the rule (aimd.Rule), in the order of `names` below
-- ARGV[17...]  lease: keys, known rate; throttled: ago, estimate, retry_after, known rate
-- returns  {now, "none"} when the bucket was never throttled or is forgotten, and nothing is known of it;
--          {now, "rate", rate} to peek and throttled; {now, "lease", starts_in, keys, rate};
--          {now, "wait", seconds, spread, rate}. All numbers are texts.
-- The clock is this server's alone: instants never leave it, callers get and give durations.
-- Numbers are seconds and rates: doubles, written with 17 digits so that they come back as they were.
local HIGHEST = 1e9
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local names = {'gentle', 'hard', 'hardly', 'period_keys', 'shortest_period', 'longest_period', 'doubling', 'growth',
               'floor', 'slice', 'rest', 'credit', 'idle', 'longest_pause',
               'furthest'}
local rule = {}
for i, name in ipairs(names) do
  rule[name] = tonumber(ARGV[i + 1])
end
local fields = {'low', 'peak', 'since', 'holds_from', 'free_at', 'not_before'}

local function text(number)
  return string.format('%.17g', number)
end

local function load()
  local held = redis.call('HMGET', KEYS[1], unpack(fields))
  local state = {}
  for i, name in ipairs(fields) do
    state[name] = held[i] and tonumber(held[i])
    if not state[name] or state[name] ~= state[name] then
      return nil
    end
  end
  -- After the clock was set back (another server was promoted) instants lie too far ahead of it.
  state.since = math.min(state.since, now)
  state.free_at = math.min(state.free_at, now + rule.furthest)
  state.holds_from = math.min(state.holds_from, state.free_at)
  state.not_before = math.min(state.not_before, now + rule.longest_pause)
  return state
end

-- Time in which nobody wanted the budget proves nothing about the limit: the curve stood still in it.
local function since(state)
  local unused = math.max(0, now - rule.credit - state.free_at)
  return math.min(now, state.since + unused)
end

local function save(state)
  local flat = {}
  for _, name in ipairs(fields) do
    flat[#flat + 1] = name
    flat[#flat + 1] = text(state[name])
  end
  redis.call('HSET', KEYS[1], unpack(flat))
  -- A pause that a store asked for may be longer than a bucket is kept without it.
  local keep = rule.idle + math.max(0, state.not_before - now)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep * 1000))
end

local function rate(state)
  local elapsed = now - since(state)
  local period = math.max(rule.shortest_period, math.min(rule.longest_period, rule.period_keys / state.peak))
  local x = elapsed / period - 1
  local scale = x < 0 and state.peak - state.low or rule.growth * state.peak
  local curve = state.peak + scale * x * x * x
  local doubled = state.low * 2 ^ math.min(elapsed / rule.doubling, 60)
  return math.max(rule.floor, math.min(curve, doubled, HIGHEST))
end

local function seeded(known)
  local low = math.max(rule.floor, known)
  return {low = low, peak = low, since = now, holds_from = 0, free_at = now, not_before = 0}
end

local function lease(state, keys)
  local current = rate(state)
  local begin = math.max(state.free_at, state.not_before, now - rule.credit)
  local ahead = math.max(rule.slice, keys / current)
  if begin - now > ahead then
    return {text(now), 'wait', text(begin - now - ahead), text(ahead), text(current)}
  end
  local granted = math.max(keys, current * rule.slice)
  state.since = since(state)
  state.free_at = begin + granted / current
  return {text(now), 'lease', text(begin - now), text(granted), text(current)}
end

local function throttled(state, ago, estimate, retry_after, known)
  if not state and known > 0 then
    state = seeded(known)
  end
  if not state then
    local low = math.max(rule.floor, estimate * rule.hard)
    state = {low = low, peak = HIGHEST, since = now, holds_from = now, free_at = now, not_before = 0}
  elseif now - ago >= state.holds_from then
    local current = rate(state)
    local again = current < state.low * rule.hardly
    state.low = math.max(rule.floor, current * (again and rule.hard or rule.gentle))
    state.peak = math.max(state.low, again and state.peak or current)
    state.since, state.holds_from = now, math.max(now, state.free_at)
    state.free_at = state.holds_from + rule.rest
  end
  local pause = math.min(math.max(retry_after, 0), rule.longest_pause)
  if pause > 0 then
    state.not_before = math.max(state.not_before, now + pause)
  end
  return state
end

local state = load()
if ARGV[1] == 'peek' then
  return state and {text(now), 'rate', text(rate(state))} or {text(now), 'none'}
end
if ARGV[1] == 'throttled' then
  state = throttled(state, tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[20]))
  save(state)
  return {text(now), 'rate', text(rate(state))}
end
local keys, known = tonumber(ARGV[17]), tonumber(ARGV[18])
if not state then
  if known <= 0 then
    return {text(now), 'none'}
  end
  state = seeded(known)
end
local answer = lease(state, keys)
save(state)
return answer

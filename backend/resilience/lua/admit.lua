-- Decides whether attempts may be made now. Called once per batch of one output.
--
-- KEYS  1 breaker (hash)  2 rate limit (string)  3, 4 ledger: newer and older (hashes)
--       5 redelivery's mark (string)  6 events (stream)  7 hold: until when the receiver is left alone (string)
-- ARGV  1 time, or "" for Redis' own  2 probe seconds  3 token interval, or 0 without a limit
--       4 burst  5 horizon in seconds  6 output's name for events (JSON)
--       7 a letter for each attempt: f(irst), r(edelivery) or t (a retry)  8 the messages' ids, 16 bytes each
-- Returns {time, breaker's state, its until, seconds left of the hold or ""} followed by one answer for each attempt:
--   {"repeat", position} | {"open", until, cause} | {"held", until} | {"limited", due} | {"send", wait, "probe" or ""}
--   | 1, which is {"send", 0, ""}
-- Thousands of arguments and answers would take longer to write and to read than this to run.
-- Seconds that an unused breaker is kept beyond its open time; so the state of a deleted pipeline goes too.
local kept = 30 * 86400
local clock = redis.call('TIME')
local now = ARGV[1] ~= '' and tonumber(ARGV[1]) or tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local interval, burst, horizon = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local breaker = redis.call('HMGET', KEYS[1], 'state', 'until', 'cause')
local state, ends, cause = breaker[1] or 'closed', tonumber(breaker[2] or '0'), breaker[3] or ''
local backlog = interval > 0 and redis.call('EXISTS', KEYS[5]) == 1
local held = redis.call('GET', KEYS[7])
local starts = math.max(now, tonumber(held or '0'))
local full_at = interval > 0 and tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local taken = false

local function admit_by_breaker()
  if state == 'closed' then return true, '' end
  if now < ends then return false, '' end
  local before = state
  state, ends = 'half_open', now + tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], 'state', state, 'until', tostring(ends))
  redis.call('EXPIRE', KEYS[1], math.ceil(ends - now) + kept)
  if before == 'open' then
    redis.call('XADD', KEYS[6], 'MAXLEN', '~', 10000, '*', 'kind', 'breaker', 'output', ARGV[6], 'state', state,
      'until', string.format('%.3f', ends), 'cause', 'The open time has ended; one message is sent as a probe.')
  end
  return true, 'probe'
end

local function token()
  if interval == 0 then return starts - now end
  local at = math.max(starts, full_at - burst * interval)
  if at - now > horizon then return nil, at end
  full_at = math.max(full_at, starts) + interval
  taken = true
  return at - now
end

local answers = {}
for i = 1, #ARGV[7] do
  local kind, id = string.sub(ARGV[7], i, i), string.sub(ARGV[8], 16 * i - 15, 16 * i)
  local position = kind ~= 't' and (redis.call('HGET', KEYS[3], id) or redis.call('HGET', KEYS[4], id))
  if position then
    answers[#answers + 1] = {'repeat', position}
  elseif state ~= 'closed' and now < ends then
    answers[#answers + 1] = {'open', string.format('%.3f', ends), cause}
  elseif starts - now > horizon then
    answers[#answers + 1] = {'held', string.format('%.3f', starts)}
  elseif kind == 'f' and backlog then
    answers[#answers + 1] = {'limited', string.format('%.3f', now + 1)}
  else
    local wait, due = token()
    if wait then
      local allowed, probe = admit_by_breaker()
      local is_plain = wait == 0 and probe == ''
      answers[#answers + 1] = is_plain and 1 or {'send', string.format('%.6f', wait), probe}
    else
      answers[#answers + 1] = {'limited', string.format('%.3f', due)}
    end
  end
end
if taken then
  redis.call('SET', KEYS[2], string.format('%.6f', full_at), 'PX', math.ceil((full_at - now) * 1000) + 1000)
end
local left = held and string.format('%.6f', tonumber(held) - now) or ''
return {string.format('%.6f', now), state, string.format('%.3f', ends), left, unpack(answers)}

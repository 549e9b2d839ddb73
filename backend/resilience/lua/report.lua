-- Records the outcomes of attempts: errors for the breaker, deliveries for the ledger. Called once per batch of one
-- output.
--
-- KEYS  1 breaker (hash)  2 errors (list, newest first)  3, 4 ledger: newer and older (hashes)  5 events (stream)
-- ARGV  1 time, or ""  2 errors that open  3 window in seconds  4 penalty in seconds
--       5 seconds after which the newer ledger becomes the older  6 seconds that both are kept without use
--       7 output's name for events (JSON)  8 the probe's outcome: "", "ok" or "failed"
--       9 number of errors, then the cause of each; then pairs: delivered id, position
-- Returns {breaker's state, its until}
local clock = redis.call('TIME')
local now = ARGV[1] ~= '' and tonumber(ARGV[1]) or tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local breaker = redis.call('HMGET', KEYS[1], 'state', 'until')
local state, ends = breaker[1] or 'closed', tonumber(breaker[2] or '0')

local function turn(to, cause)
  state = to
  redis.call('HSET', KEYS[1], 'state', state, 'until', tostring(ends), 'since', string.format('%.3f', now),
    'cause', cause)
  redis.call('XADD', KEYS[5], 'MAXLEN', '~', 10000, '*', 'kind', 'breaker', 'output', ARGV[7],
    'state', state, 'until', string.format('%.3f', ends), 'cause', cause)
end

local limit = tonumber(ARGV[2])
local count = tonumber(ARGV[9])
for i = 10, 9 + count do
  redis.call('LPUSH', KEYS[2], string.format('%.6f', now) .. '|' .. ARGV[i])
  if state == 'closed' then
    redis.call('HINCRBY', KEYS[1], 'errors', 1)
    local oldest = tonumber(redis.call('HGET', KEYS[1], 'errors')) >= limit and redis.call('LINDEX', KEYS[2], limit - 1)
    if oldest and now - tonumber(string.match(oldest, '^[^|]+')) <= tonumber(ARGV[3]) then
      ends = now + tonumber(ARGV[4])
      turn('open', ARGV[i])
    end
  end
end
if count > 0 then
  redis.call('LTRIM', KEYS[2], 0, math.max(limit, 5) - 1)
  redis.call('EXPIRE', KEYS[2], 86400)
end

if state == 'half_open' then
  if ARGV[8] == 'ok' then
    ends = 0
    redis.call('HSET', KEYS[1], 'errors', 0)
    turn('closed', 'The probe was delivered.')
  elseif ARGV[8] == 'failed' then
    ends = now + tonumber(ARGV[4])
    turn('open', count > 0 and ARGV[9 + count] or 'The probe failed.')
  end
end

if #ARGV > 9 + count then
  local began = redis.call('HGET', KEYS[3], 'began')
  if began and now - tonumber(began) > tonumber(ARGV[5]) then
    redis.call('RENAME', KEYS[3], KEYS[4])
    began = false
  end
  if not began then redis.call('HSET', KEYS[3], 'began', tostring(now)) end
  for i = 10 + count, #ARGV, 2 do
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  end
  redis.call('EXPIRE', KEYS[3], ARGV[6])
  redis.call('EXPIRE', KEYS[4], ARGV[6])
end
return {state, string.format('%.3f', ends)}

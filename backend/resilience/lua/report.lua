-- Records the outcomes of attempts: errors for the breaker, deliveries for the ledger, and how long the receiver asks
-- to be left alone. Called once per batch of one output.
--
-- KEYS  1 breaker (hash)  2 errors (list, newest first)  3, 4 ledger: newer and older (hashes)  5 events (stream)
--       6 ledger's horizon (string)  7 hold: until when the receiver is left alone (string)
-- ARGV  1 time, or ""  2 errors that open  3 window in seconds  4 open time in seconds
--       5 the most deliveries in the newer ledger  6 seconds that both are kept without use
--       7 output's name for events (JSON)  8 the probe's outcome: "", "ok" or "failed"
--       9 seconds for which the receiver asks to be left alone, or 0
--       10 ids of what was delivered, 16 bytes each  11 the position of each, separated by commas
--       then message|cause of each error, where a message without a cause was delivered after all
-- Returns {breaker's state, its until, seconds left of the hold or ""}
-- Seconds that an unused breaker is kept beyond its open time; so the state of a deleted pipeline goes too.
local kept = 30 * 86400
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

-- The newest "errors" entries of the list are those since the breaker was last closed.
local function forget(message)
  local counted = tonumber(redis.call('HGET', KEYS[1], 'errors') or '0')
  for index, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.match(entry, '^[^|]*|([^|]*)|') == message then
      redis.call('LREM', KEYS[2], 1, entry)
      if index <= counted then redis.call('HINCRBY', KEYS[1], 'errors', -1) end
    end
  end
end

local limit = tonumber(ARGV[2])
local first_error = 12
local count = #ARGV - first_error + 1
local last_cause
for i = first_error, #ARGV do
  local message, cause = string.match(ARGV[i], '^([^|]*)|(.*)$')
  if cause == '' then
    forget(message)
  else
    last_cause = cause
    redis.call('LPUSH', KEYS[2], string.format('%.6f', now) .. '|' .. ARGV[i])
    if state == 'closed' then
      redis.call('HINCRBY', KEYS[1], 'errors', 1)
      local oldest = tonumber(redis.call('HGET', KEYS[1], 'errors')) >= limit
        and redis.call('LINDEX', KEYS[2], limit - 1)
      if oldest and now - tonumber(string.match(oldest, '^[^|]+')) <= tonumber(ARGV[3]) then
        ends = now + tonumber(ARGV[4])
        turn('open', cause)
      end
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
    turn('open', last_cause or 'The probe failed.')
  end
end

if count > 0 or ARGV[8] ~= '' then
  redis.call('EXPIRE', KEYS[1], math.ceil(math.max(ends - now, 0)) + kept)
end

if #ARGV[10] > 0 then
  -- The older half goes once no copy of what was delivered before it was sealed can arrive any more, not after some
  -- time: copies may wait behind a backlog for as long as it takes.
  local sealed = redis.call('HGET', KEYS[4], 'sealed')
  local horizon = tonumber(redis.call('GET', KEYS[6]) or '0')
  local size = redis.call('HLEN', KEYS[3])
  if size > 0 and (not sealed or tonumber(sealed) < horizon or size >= tonumber(ARGV[5])) then
    redis.call('UNLINK', KEYS[4])
    redis.call('RENAME', KEYS[3], KEYS[4])
    redis.call('HSET', KEYS[4], 'sealed', string.format('%.6f', now))
  end
  local at = 1
  for position in string.gmatch(ARGV[11], '[^,]+') do
    redis.call('HSET', KEYS[3], string.sub(ARGV[10], at, at + 15), position)
    at = at + 16
  end
  redis.call('EXPIRE', KEYS[3], ARGV[6])
  redis.call('EXPIRE', KEYS[4], ARGV[6])
end

local held = redis.call('GET', KEYS[7])
local asked = tonumber(ARGV[9])
if asked > 0 and now + asked > tonumber(held or '0') then
  held = string.format('%.6f', now + asked)
  redis.call('SET', KEYS[7], held, 'PX', math.ceil(asked * 1000) + 1000)
end
return {state, string.format('%.3f', ends), held and string.format('%.6f', tonumber(held) - now) or ''}

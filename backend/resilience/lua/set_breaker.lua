-- Sets the breaker, for an operator or for an engine for which Redis was unavailable.
--
-- KEYS  1 breaker (hash)  2 events (stream)
-- ARGV  1 time, or ""  2 state: open or closed  3 open time in seconds  4 cause  5 output's name for events (JSON)
-- Seconds that an unused breaker is kept beyond its open time; so the state of a deleted pipeline goes too.
local kept = 30 * 86400
local clock = redis.call('TIME')
local now = ARGV[1] ~= '' and tonumber(ARGV[1]) or tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local ends = ARGV[2] == 'open' and now + tonumber(ARGV[3]) or 0
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'until', tostring(ends), 'since', string.format('%.3f', now),
  'cause', ARGV[4], 'errors', 0)
redis.call('EXPIRE', KEYS[1], math.ceil(math.max(ends - now, 0)) + kept)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*', 'kind', 'breaker', 'output', ARGV[5],
  'state', ARGV[2], 'until', string.format('%.3f', ends), 'cause', ARGV[4])
return ends

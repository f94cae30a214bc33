-- Charges uses to a client and returns how far ahead of now its theoretical
-- arrival time is then. Times are microseconds since 1970, far below 2^53.
-- KEYS[1] the client's key
-- ARGV    what the uses are worth, the largest lead that is remembered
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local arrival = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local ahead = math.min(math.max(arrival - now, 0) + ARGV[1], tonumber(ARGV[2]))
if ahead > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', now + ahead), 'PX', math.ceil(ahead / 1000))
end
return ahead

-- release gives a number back with its final mark, the last timestamp used: the
-- next holder starts right behind it. Only the holder can do so.
--
-- ARGV: scheme, lead, skew, number, nonce, next nonce, last timestamp
--
-- Returns {status, number, floor, ceiling, Redis time, wait, text}, the status
-- being released, lost (nothing was changed) or scheme.

local n, nonce, successor, used = tonumber(ARGV[4]), ARGV[5], ARGV[6], tonumber(ARGV[7])

local r, recorded = open(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
if not r then return { 'scheme', n, 0, 0, now, 0, recorded } end

local rec = read(r, n)
if rec and (rec.nonce == '-' .. nonce or rec.nonce == '-' .. successor) then
  return { 'released', n, rec.floor, rec.ceiling, now, 0, '' } -- repeated after a lost reply
end
if not (rec and rec.held) then
  return { 'lost', n, 0, 0, now, 0, 'nobody: Redis has forgotten it' }
end
if rec.nonce ~= nonce and rec.nonce ~= successor then
  return { 'lost', n, 0, 0, now, 0, rec.owner .. ' at ' .. rec.address }
end
rec.ceiling = math.min(rec.ceiling, math.max(used, rec.floor - 1))
rec.nonce = '-' .. successor
write(r, n, rec)
redis.call('ZADD', LEASES, text(now), text(n))
return { 'released', n, rec.floor, rec.ceiling, now, 0, '' }

-- extend renews a lease and makes a later ceiling durable.
--
-- ARGV: scheme, lead, skew, ttl, number, nonce, next nonce, floor, ceiling,
-- address, owner, latest ceiling allowed, registry (1/0)
--
-- The nonce rotates: the old or the new one is accepted, so that a repetition
-- after a lost reply does no harm, and the second of two clones is found out.
--
-- Returns {status, number, floor, ceiling, Redis time, wait, text}:
--   granted    the ceiling is durable
--   pending    as in acquire.lua
--   reclaimed  granted, and Redis had forgotten about us
--   lost       the number is not ours any more; text: whose
--   scheme     the registry is of another scheme; text: which

local scheme, lead, skew, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local n, nonce, successor = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local floor, ceiling, address, owner = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local latest, registry = tonumber(ARGV[12]), ARGV[13] == '1'

local r, recorded = open(scheme, lead, skew)
if not r then return { 'scheme', n, floor, ceiling, now, 0, recorded } end

local rec = read(r, n)
local status = 'granted'
if rec and rec.held then
  if rec.nonce ~= nonce and rec.nonce ~= successor then
    return { 'lost', n, floor, ceiling, now, 0, rec.owner .. ' at ' .. rec.address }
  end
elseif rec and (rec.nonce == nonce or rec.nonce == successor)
    and now + 2 * math.max(skew, 0) < rec.ceiling - lead + ttl then
  -- A new term, but Redis still has the last thing this holder wrote, and the
  -- lease that was written with it has not ended: nobody at another address was
  -- given the number since, unless the lease was lost in a term between, and that
  -- is forgotten, too. The skew counts twice: for the clock that the ceiling was
  -- taken from, and for that of the node that may have given the number away. Of a
  -- nonce that was sent twice Redis may be back at the first time, so our own
  -- ceiling counts.
  rec.ceiling = math.max(rec.ceiling, ceiling)
  status = 'reclaimed'
else
  -- Redis has forgotten. The number is re-claimed by whoever has a ceiling that
  -- is still to come, for there is only one such holder (see raise). Nobody can
  -- have got the number afresh, because that is not done in quarantine.
  local alive = floor <= ceiling and ceiling >= now + math.max(skew, 0)
  if not alive or (now >= r.base and skew >= 0) then
    return { 'lost', n, floor, ceiling, now, 0, 'nobody: Redis has forgotten it' }
  end
  rec = { floor = floor, ceiling = math.max(ceiling, rec and rec.ceiling or 0) }
  status = 'reclaimed'
end
if status == 'reclaimed' then
  redis.call('HSET', ADDRESSES, address, text(n))
  if registry then
    redis.call('HSET', KEPT, address, text(n))
    local counter = tonumber(redis.call('HGET', RECORDS, 'counter') or 0)
    redis.call('HSET', RECORDS, 'counter', text(math.max(counter, n)))
  end
end
rec.nonce, rec.address, rec.owner = successor, address, owner
raise(rec, lead, latest)
write(r, n, rec)
lease(rec, lead, ttl, n)
if rec.ceiling < rec.floor then
  return { 'pending', n, rec.floor, rec.ceiling, now, rec.floor - now, '' }
end
return { status, n, rec.floor, rec.ceiling, now, 0, '' }

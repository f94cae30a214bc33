-- acquire takes a worker number, in one round trip whatever is taken.
--
-- ARGV: scheme, lead, skew, ttl, nonce, address, owner, client's time, longest
-- difference of it, takeover (1/0), wanted number (-1: none), first and last
-- number to choose from (last < first: none), how many free numbers there may
-- be outside of that range, registry (1/0)
--
-- Returns {status, number, floor, ceiling, Redis time, wait, text}:
--   granted     ids may be issued
--   pending     the number is ours, but Redis time has yet to pass the ceiling
--               of the predecessor: extend after wait
--   quarantine  the registry is new or may have forgotten: come back after wait
--   full        every number is taken; wait: until the next lease may end
--   held        the only number in question is somebody else's; text: whose
--   exhausted   the registry has given out its last number, and none was freed
--   clock       the client's clock is off by more than allowed; wait: by how much
--   scheme      the registry is of another scheme; text: which

local scheme, lead, skew, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local nonce, address, owner = ARGV[5], ARGV[6], ARGV[7]
local client, tolerance, takeover = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1'
local wanted, first, last = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local outside, registry = tonumber(ARGV[14]), ARGV[15] == '1'

if math.abs(client - now) > tolerance then
  return { 'clock', -1, 0, 0, now, client - now, '' }
end
local r, recorded = open(scheme, lead, skew)
if not r then return { 'scheme', -1, 0, 0, now, 0, recorded } end

local function free(n) return leased_until(n) <= now end
local function allowed(n) return n == wanted or (n >= first and n <= last) end

-- claims says whether n becomes the number that this address is given again. It does not while
-- somebody else uses another number at this address: two gateways that give the same address
-- would take each other's numbers for ever.
local function claims(n)
  local m = tonumber(redis.call('HGET', ADDRESSES, address) or -1)
  if takeover or m < 0 or m == n or free(m) then return true end
  local rec = read(r, m)
  return not (rec and rec.held and rec.address == address and rec.nonce ~= nonce)
end

-- grant gives number n away, at the ceiling + 1 of whoever had it before. The
-- same nonce again is a repetition after a lost reply: it gets the same floor.
local function grant(n, note)
  local rec = read(r, n)
  if not (rec and rec.held and rec.nonce == nonce) then
    local used = math.max(rec and rec.ceiling or 0, r.base)
    rec = { nonce = nonce, floor = used + 1, ceiling = used }
  end
  rec.address, rec.owner = address, owner
  raise(rec, lead, client + tolerance + lead)
  write(r, n, rec)
  lease(rec, lead, ttl, n)
  if claims(n) then redis.call('HSET', ADDRESSES, address, text(n)) end
  if registry then redis.call('HSET', KEPT, address, text(n)) end
  if rec.ceiling < rec.floor then
    return { 'pending', n, rec.floor, rec.ceiling, now, rec.floor - now, note }
  end
  return { 'granted', n, rec.floor, rec.ceiling, now, 0, note }
end

-- never_used returns the lowest number without a lease, not even one that has
-- ended. In each term the search goes on where it ended the last time.
local function never_used()
  local field = 'next:' .. text(first)
  local term, n = string.match(redis.call('HGET', RECORDS, field) or '', '^(%d+) (%d+)$')
  n = tonumber(term) == r.term and tonumber(n) or first
  while n <= last and leased_until(n) > 0 do n = n + 1 end
  redis.call('HSET', RECORDS, field, text(r.term) .. ' ' .. text(n))
  if n <= last then return n end
end

-- longest_free returns the number that has been free for the longest time,
-- passing over those whose floor is far in the future (a Redis clock that was
-- ahead for a while) as long as there are others.
local function longest_free()
  local fallback
  local list = redis.call('ZRANGEBYSCORE', LEASES, '-inf', text(now), 'LIMIT', 0, outside + 16)
  for _, m in ipairs(list) do
    local n = tonumber(m)
    if n >= first and n <= last then
      fallback = fallback or n
      local rec = read(r, n)
      if not rec or rec.ceiling <= now + lead then return n end
    end
  end
  return fallback
end

-- unkept returns a number of the registry that was freed (see free.lua) and that
-- nobody holds, passing over those whose floor is far in the future as long as
-- there are others.
local function unkept()
  local kept, fallback = {}, nil
  for _, n in ipairs(redis.call('HVALS', KEPT)) do kept[tonumber(n)] = true end
  for n = first, last do
    if not kept[n] and free(n) then
      local rec = read(r, n)
      if not rec or rec.ceiling <= now + lead then return n end
      fallback = fallback or n
    end
  end
  return fallback
end

-- usurped says whether n, which this address keeps, is held by another address
-- that keeps it, too: it was freed and given away, and Redis has forgotten the
-- former.
local function usurped(n)
  local rec = read(r, n)
  return rec and rec.address ~= address and not free(n)
    and tonumber(redis.call('HGET', KEPT, rec.address) or -1) == n
end

-- registered returns the number this address keeps, or gives it the next one;
-- when the last is given out, one that was freed.
local function registered()
  local n = tonumber(redis.call('HGET', KEPT, address) or -1)
  if n >= 0 and not usurped(n) then return n end
  n = tonumber(redis.call('HGET', RECORDS, 'counter') or 0) + 1
  while n <= last and not free(n) do n = n + 1 end
  if n <= last then
    redis.call('HSET', RECORDS, 'counter', text(n))
  else
    n = unkept()
    if not n then return nil end
  end
  redis.call('HSET', KEPT, address, text(n))
  return n
end

-- Whoever asks in quarantine waits: a holder that lives may still re-claim any
-- number. A repetition is no exception, its grant was of an earlier term.
if now < r.base then
  return { 'quarantine', -1, 0, 0, now, r.base - now + 1, '' }
end
if registry then
  wanted = registered()
  if not wanted then return { 'exhausted', last, 0, 0, now, 0, '' } end
  first, last = 0, -1
end

local before = tonumber(redis.call('HGET', ADDRESSES, address) or -1)
if before >= 0 and allowed(before) then
  local rec = read(r, before)
  local same = rec and not free(before) and rec.address == address
  -- Of an earlier term it may be our own, lost in a rollback.
  local ours = same and (rec.nonce == nonce or not rec.held)
  if ours or (same and takeover) then return grant(before, '') end
end
local note = ''
if wanted >= 0 then
  if free(wanted) then return grant(wanted, '') end
  local rec = read(r, wanted)
  note = rec and (rec.owner .. ' at ' .. rec.address) or 'unknown'
  if last < first then
    return { 'held', wanted, 0, 0, now, leased_until(wanted) - now, note }
  end
end
if before >= first and before <= last and free(before) then return grant(before, note) end
local n = never_used() or longest_free()
if n then return grant(n, note) end
local soonest = redis.call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
return { 'full', -1, 0, 0, now, math.max(1, tonumber(soonest[2] or now) - now), '' }

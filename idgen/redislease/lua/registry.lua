-- The registry of worker numbers: what every script shares. It is put in front
-- of acquire.lua, extend.lua, release.lua and free.lua.
--
-- KEYS, all under one hash tag:
--   1  w    hash   number -> record (below); "meta"; "counter"; "next:<first>"
--   2  wl   zset   number -> Redis time (ms) until which it is leased
--   3  wa   hash   address -> number it had last
--   4  wr   hash   address -> number it keeps until it is freed (WORKER_ID=registry)
--
-- A record is "nonce floor ceiling term address owner"; the nonce has a '-' in
-- front after a release. Its ceiling is what
-- uniqueness rests on: timestamps up to it may be on ids. "meta" and all
-- ceilings are fields of one hash, so they get lost together or not at all; the
-- other three keys only say who is to get which number. They may vanish; only
-- together with a later rollback of the hash that matters (see extend.lua).
--
-- Timestamps are Unix milliseconds: far below 2^53, above which Lua would round.

local RECORDS, LEASES, ADDRESSES, KEPT = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function text(n) return string.format('%.0f', n) end

local function redis_time()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local now = redis_time()

-- It changes whenever this Redis may have forgotten something: restart,
-- failover, a shard that moved. '-' where Redis does not tell (miniredis, ACLs).
local function replication_id()
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' then return '-' end
  return string.match(info, 'master_replid:(%w+)') or '-'
end

-- begin starts a term. Whatever was granted before it ends at or below base:
-- nobody ever got a ceiling more than lead ahead, and no two Redis nodes differ
-- by more than skew. Records of earlier terms keep their ceiling and are void
-- otherwise. What is left of the leases still counts: until a holder's lease ends
-- its number is given to nobody at another address, so that it may return to it,
-- even if Redis goes back once more (see extend.lua).
local function begin(r, replid, lead, skew)
  r.term, r.replid = now, replid
  r.base = now + lead + skew
  if skew < 0 then r.base = 0 end
  redis.call('HSET', RECORDS, 'meta',
    text(r.term) .. ' ' .. text(r.base) .. ' ' .. replid .. ' ' .. r.scheme)
end

-- open returns the registry, or nil and its scheme where that is another one.
-- A negative skew means that there is no quarantine: the store lives and dies
-- with this process.
local function open(scheme, lead, skew)
  local replid = replication_id()
  local meta = redis.call('HGET', RECORDS, 'meta')
  local r = { scheme = scheme }
  if meta then
    local term, base, known, recorded = string.match(meta, '^(%d+) (%d+) (%S+) (.+)$')
    if recorded ~= scheme then return nil, recorded end
    r.term, r.base, r.replid = tonumber(term), tonumber(base), known
  end
  if not meta or (replid ~= '-' and replid ~= r.replid) then
    begin(r, replid, lead, skew)
  end
  return r
end

-- read returns the record of a number, or nil. held says whether somebody has
-- it by a grant of this term.
local function read(r, n)
  local v = redis.call('HGET', RECORDS, text(n))
  if not v then return nil end
  local nonce, floor, ceiling, term, address, owner =
    string.match(v, '^(%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  return {
    nonce = nonce, floor = tonumber(floor), ceiling = tonumber(ceiling),
    address = address, owner = owner,
    held = string.sub(nonce, 1, 1) ~= '-' and tonumber(term) == r.term,
  }
end

local function write(r, n, rec)
  redis.call('HSET', RECORDS, text(n), table.concat({
    rec.nonce, text(rec.floor), text(rec.ceiling), text(r.term), rec.address, rec.owner }, ' '))
end

local function leased_until(n)
  return tonumber(redis.call('ZSCORE', LEASES, text(n)) or 0)
end

-- raise extends the ceiling of a record, but not before Redis time has passed
-- its predecessor's: so at no time do two holders both have a ceiling that is
-- still to come, and what a holder shows after data loss (see extend.lua) can
-- be believed. latest keeps a jump of the Redis clock out of the registry.
local function raise(rec, lead, latest)
  if now >= rec.floor then
    rec.ceiling = math.max(rec.ceiling, math.min(now + lead, latest))
  end
end

-- lease reserves a number for its holder. It lasts for as long as it is believed to
-- by the ceiling that is written with it (see extend.lua), also where the clock of Redis
-- has stepped back since that was recorded.
local function lease(rec, lead, ttl, n)
  redis.call('ZADD', LEASES, text(math.max(now, rec.ceiling - lead) + ttl), text(n))
end

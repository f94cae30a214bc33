-- What all gateways share about revocation. This is put in front of every script
-- that reads or writes it.
--
-- KEYS[1]  rev  hash:
--   v            the revision: one more with every change
--   m            the longest lifetime of a token ever permitted, in ms
--   g:<client>   generation:end
--   i:<rule id>  JSON of an interval of ids; it begins with {"end":<end>
--   p            where pruning goes on
-- ARGV[1] the push channel, ARGV[2] the longest lifetime the caller knows of,
-- ARGV[3] how long a rule is kept after its end, ARGV[4] a longest lifetime for
-- when nobody knows one
--
-- Instants are Unix milliseconds and, like revisions, far below 2^53, above which
-- Lua would round.

local REV, CHANNEL = KEYS[1], ARGV[1]
local GRACE = tonumber(ARGV[3])

local function text(n) return string.format('%.0f', n) end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function number(field)
  return tonumber(redis.call('HGET', REV, field) or '') or 0
end

-- primary_only makes the script fail on a replica, whose copy may be old: Redis
-- refuses the HDEL there, and on the primary it removes nothing.
local function primary_only() redis.call('HDEL', REV, '') end

-- generation returns the generation and the end that a g: field holds, 0 and 0
-- if there is none.
local function generation(field)
  local g, e = string.match(redis.call('HGET', REV, field) or '', '^(%d+):(%d+)$')
  return tonumber(g) or 0, tonumber(e) or 0
end

-- interval returns the value of an i: field and its end, '' and 0 if there is
-- none, or none that makes sense.
local function interval(field)
  local value = redis.call('HGET', REV, field) or ''
  local e = tonumber(string.match(value, '^{"end":(%d+)') or '')
  if not e then return '', 0 end
  return value, e
end

local function ended(field, value)
  local kind, e = string.sub(field, 1, 2), nil
  if kind == 'g:' then e = string.match(value, '^%d+:(%d+)$') end
  if kind == 'i:' then e = string.match(value, '^{"end":(%d+)') end
  return e and tonumber(e) + GRACE <= now
end

-- prune forgets what has ended, a part of the hash at a time: every write does
-- the same bounded work. It begins with a write that frees memory, after which
-- Redis 6 lets the rest of a script pass even when it is full.
local function prune()
  local cursor = string.match(redis.call('HGET', REV, 'p') or '', '^%d+$') or '0'
  redis.call('HDEL', REV, 'p')
  local page = redis.call('HSCAN', REV, cursor, 'COUNT', 32)
  for i = 1, #page[2], 2 do
    if ended(page[2][i], page[2][i + 1]) then redis.call('HDEL', REV, page[2][i]) end
  end
  if page[1] ~= '0' then redis.call('HSET', REV, 'p', page[1]) end
end

-- longest returns the longest lifetime that any rule has to outlast.
local function longest()
  local m = math.max(number('m'), tonumber(ARGV[2]))
  if m == 0 then return tonumber(ARGV[4]) end
  return m
end

-- raise makes the revision at least that.
local function raise(v)
  redis.call('HSET', REV, 'v', text(v))
  return v
end

-- push tells the gateways, and returns why it could not: the change counts all
-- the same, they look once a second.
local function push(kind, v)
  local sent = redis.pcall('PUBLISH', CHANNEL, kind .. ' ' .. text(v) .. ' ' .. text(now))
  if type(sent) == 'table' and sent.err then return sent.err end
  return ''
end

-- The clients that all gateways share. This is put in front of every script.
--
-- KEYS, all under one hash tag:
--   1  rev  hash   v: the revision, one more with every change of what is shared;
--                  g:<client>: the client's generation and when it ends; more
--                  (see tokens/redisstore)
--   2  c    hash   client id -> document
--   3  cs   zset   client id -> revision of its last change; it stays when the
--                  client is deleted, so that the others learn of it
--   4  cu   hash   client id/secret id -> when the secret was last used, Unix s
--   5  cm   hash   deleted: operation and revision of the last deletion;
--                  restored: revision at which something was last given back
--
-- A document is JSON that begins with the members that scripts read and write:
-- {"v":1,"rev":<revision>,"gen":<generation>,"op":"<operation>",
-- An operation is the random name of one change. A script that finds its own
-- operation in the document was sent a second time, because the reply to the
-- first was lost; it changes nothing and returns what the first returned.
--
-- ARGV[1] is the push channel. Revisions and Unix milliseconds are far below
-- 2^53, above which Lua would round.

local REV, DOCS, CHANGED, USED, MARKS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local CHANNEL = ARGV[1]

local function text(n) return string.format('%.0f', n) end

local function revision() return tonumber(redis.call('HGET', REV, 'v') or '') or 0 end

-- raise makes the revision v.
local function raise(v)
  redis.call('HSET', REV, 'v', text(v))
  return v
end

-- head returns revision, generation and operation of a document, nil if it does
-- not begin like one.
local function head(doc)
  local rev, gen, op = string.match(doc, '^{"v":1,"rev":(%d+),"gen":(%d+),"op":"(%w*)",')
  return tonumber(rev), tonumber(gen), op
end

-- primary_only makes the script fail on a replica, whose copy may be old: Redis
-- refuses the HDEL there, and on the primary it removes nothing.
local function primary_only() redis.call('HDEL', REV, '') end

local function last_change(id)
  return tonumber(redis.call('ZSCORE', CHANGED, id) or '') or 0
end

local function time()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- follow_up returns the revision that a change of a client gets: greater than
-- every one before, and than its generation.
local function follow_up(id)
  local gen = string.match(redis.call('HGET', REV, 'g:' .. id) or '', '^(%d+):')
  return math.max(revision(), tonumber(gen) or 0) + 1
end

-- stop makes v the generation of a client, so that tokens of earlier ones are
-- not good any more, for as long as there can be any: ttl is the longest lifetime
-- that the caller knows of, grace what is added.
local function stop(id, v, ttl, grace)
  local longest = math.max(tonumber(redis.call('HGET', REV, 'm') or '') or 0, ttl)
  redis.call('HSET', REV, 'g:' .. id, text(v) .. ':' .. text(time() + longest + grace))
end

-- push tells the gateways. One that is not told looks once a second, so a push
-- that cannot be sent is no failure.
local function push(id, v)
  redis.pcall('PUBLISH', CHANNEL, 'client ' .. id .. ' ' .. text(v) .. ' ' .. text(time()))
end

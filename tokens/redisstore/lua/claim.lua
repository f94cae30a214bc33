-- claim records what all gateways of an installation must agree on, or tells
-- what is recorded.
--
-- KEYS[1] epoch         string
-- KEYS[2] installation  hash: layout, token_key
-- KEYS[3] w             the registry of worker numbers, see idgen/redislease
-- KEYS[4] tagkey        hash of the tag keys that Redis keeps
-- ARGV    epoch, layout and token key of the caller; none: only look
--
-- Nothing is written unless everything recorded equals the caller's. Gateways
-- of earlier versions recorded the epoch only: the registry and the tag keys
-- tell the rest.
--
-- Returns what is recorded afterwards: {epoch, layout, token key}.

-- GETEX without options is a GET that only a primary answers.
local epoch = redis.call('GETEX', KEYS[1]) or ''
local layout = redis.call('HGET', KEYS[2], 'layout') or ''
local token_key = redis.call('HGET', KEYS[2], 'token_key') or ''
if layout == '' then
  layout = string.match(redis.call('HGET', KEYS[3], 'meta') or '', '^%d+ %d+ %S+ (.+)@[^@]*$') or ''
end
if token_key == '' and redis.call('EXISTS', KEYS[4]) == 1 then token_key = 'redis' end

local recorded = { epoch, layout, token_key }
if #ARGV == 0 then return recorded end
for i, value in ipairs(recorded) do
  if value ~= '' and value ~= ARGV[i] then return recorded end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SET', KEYS[1], ARGV[1]) end
if redis.call('HLEN', KEYS[2]) < 2 then
  redis.call('HSET', KEYS[2], 'layout', ARGV[2])
  redis.call('HSET', KEYS[2], 'token_key', ARGV[3])
end
return { ARGV[1], ARGV[2], ARGV[3] }

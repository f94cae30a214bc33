-- rebase makes an installation another one: other epoch, layout or token key.
--
-- KEYS[3] epoch          string
-- KEYS[4] installation   hash: layout, token_key
-- KEYS[5…8] w wl wa wr   the registry of worker numbers, see idgen/redislease
-- ARGV[5…7]  epoch, layout and token key that the caller has seen
-- ARGV[8…10] the new ones
-- ARGV[11] the new scheme, ARGV[12] lead and skew together, in ms
-- ARGV[13] the field of a rule for all tokens of before, ARGV[14] the instant
-- until which it matches, ARGV[15] its JSON without the brace and the end in front
--
-- The registry starts again with a quarantine, as if Redis had been wiped. Its
-- mark is written at once, so that no running gateway writes that of the old
-- scheme. No server has the replication id '-', so the first gateway that asks
-- starts a term.
--
-- Returns {done or changed, why there was no push}.

local seen = {
  redis.call('GET', KEYS[3]) or '',
  redis.call('HGET', KEYS[4], 'layout') or '',
  redis.call('HGET', KEYS[4], 'token_key') or '',
}
for i, value in ipairs(seen) do
  if value ~= '' and value ~= ARGV[4 + i] then return { 'changed', '' } end
end
prune()
redis.call('SET', KEYS[3], ARGV[8])
redis.call('HSET', KEYS[4], 'layout', ARGV[9])
redis.call('HSET', KEYS[4], 'token_key', ARGV[10])
redis.call('DEL', KEYS[5], KEYS[6], KEYS[7], KEYS[8])
redis.call('HSET', KEYS[5], 'meta', text(now) .. ' ' .. text(now + tonumber(ARGV[12])) .. ' - ' .. ARGV[11])
local v = raise(number('v') + 1)
local e = tonumber(ARGV[14]) + longest() + GRACE
redis.call('HSET', REV, ARGV[13], '{"end":' .. text(e) .. ',"created":' .. text(now) .. ',' .. ARGV[15])
return { 'done', push('rules', v) }

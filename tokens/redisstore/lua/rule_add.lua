-- rule_add writes one rule.
--
-- ARGV[5] its field, ARGV[6] the instant before which everything it matches was
-- minted (an interval), ARGV[7] the JSON of an interval without the brace and the
-- end in front
--
-- Returns {status, revision, end, now, value, why there was no push}. status:
-- added, kept (it was there) or future (it reaches beyond now); value: the
-- generation of a client, or the JSON.

local field, last, rest = ARGV[5], tonumber(ARGV[6]), ARGV[7]

if string.sub(field, 1, 2) == 'g:' then
  prune()
  local before, old_end = generation(field)
  local v = raise(math.max(number('v'), before) + 1)
  local e = math.max(now + longest() + GRACE, old_end)
  redis.call('HSET', REV, field, text(v) .. ':' .. text(e))
  return { 'added', text(v), text(e), text(now), text(v), push('rules', v) }
end

local ceiling = now
if tonumber(clock[2]) % 1000 > 0 then ceiling = now + 1 end
if last > ceiling then return { 'future', '0', '0', text(now), '', '' } end

prune()
local value, old_end = interval(field)
local e = last + longest() + GRACE
if old_end >= e then
  return { 'kept', text(number('v')), text(old_end), text(now), value, '' }
end
if value == '' then
  value = '{"end":' .. text(e) .. ',"created":' .. text(now) .. ',' .. rest
else
  value = string.gsub(value, '^{"end":%d+', '{"end":' .. text(e), 1)
end
local v = raise(number('v') + 1)
redis.call('HSET', REV, field, value)
return { 'added', text(v), text(e), text(now), value, push('rules', v) }

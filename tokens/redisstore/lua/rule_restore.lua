-- rule_restore gives back what Redis has lost, and records the longest lifetime.
--
-- ARGV[5] a revision that was reached, ARGV[6…] for each rule: its field, its end,
-- and the generation or the JSON
--
-- Returns {revision, why there was no push}.

prune()
local v, changed = math.max(number('v'), tonumber(ARGV[5])), false

if tonumber(ARGV[2]) > number('m') then
  redis.call('HSET', REV, 'm', ARGV[2])
  changed = true
end

local function restore_generation(field, e, g)
  local known, known_end = generation(field)
  v = math.max(v, known, g)
  if known < g or known_end < e then
    redis.call('HSET', REV, field, text(math.max(known, g)) .. ':' .. text(math.max(known_end, e)))
    changed = true
  end
end

local function restore_interval(field, e, value)
  local _, known_end = interval(field)
  if known_end < e then
    redis.call('HSET', REV, field, value)
    changed = true
  end
end

for i = 6, #ARGV, 3 do
  local field, e, value = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  if e + GRACE > now then
    if string.sub(field, 1, 2) == 'g:' then
      restore_generation(field, e, tonumber(value))
    else
      restore_interval(field, e, value)
    end
  end
end

-- A revision that is lower than it was is a loss, too, though it may be of
-- something else: every gateway is to look again.
local failed = ''
if changed or v > number('v') then
  v = raise(v + 1)
  failed = push('rules', v)
end
return { text(v), failed }

-- key_remove forgets the tag keys with the starts ARGV[5…].
--
-- KEYS[2] tagkey  hash: start in Unix ms -> key
--
-- Returns {how many were removed, why there was no push}.

prune()
local removed = 0
for i = 5, #ARGV do
  removed = removed + redis.call('HDEL', KEYS[2], ARGV[i])
end
local failed = ''
if removed > 0 then failed = push('keys', raise(number('v') + 1)) end
return { text(removed), failed }

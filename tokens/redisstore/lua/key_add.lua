-- key_add adds the tag keys whose start is free.
--
-- KEYS[2] tagkey  hash: start in Unix ms -> key
-- ARGV[5…] starts and keys in turn
--
-- Returns {how many were added, why there was no push}.

prune()
local added = 0
for i = 5, #ARGV, 2 do
  added = added + redis.call('HSETNX', KEYS[2], ARGV[i], ARGV[i + 1])
end
local failed = ''
if added > 0 then failed = push('keys', raise(number('v') + 1)) end
return { text(added), failed }

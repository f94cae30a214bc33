-- restore gives back what Redis has lost: of each client the later of what is
-- there and what the caller knows counts. A deletion counts like any change.
--
-- ARGV[2] the greatest revision that the caller knows of, ARGV[3…] for each
-- client: its id, the revision of its last change, and its document, or '' if it
-- was deleted
--
-- Returns {how many were given back}.

local restored = 0

local function restore(id, rev, doc)
  local have = redis.call('HGET', DOCS, id)
  local there, indexed = 0, last_change(id)
  if have then there = head(have) or 0 end
  if there > indexed then
    -- The entry of the document was lost.
    redis.call('ZADD', CHANGED, text(there), id)
    indexed, restored = there, restored + 1
  end
  local known = math.max(there, indexed)
  -- With the same revision a document wins over none: it was lost by itself.
  if rev < known or (rev == known and (have or doc == '') and rev == indexed) then return end
  if doc == '' then
    redis.call('HDEL', DOCS, id)
  elseif rev > there then
    redis.call('HSET', DOCS, id, doc)
  end
  redis.call('ZADD', CHANGED, text(rev), id)
  restored = restored + 1
end

for i = 3, #ARGV, 3 do restore(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]) end

if restored > 0 then
  -- Greater than what any gateway has seen, so that all of them look; and what
  -- they find in restored tells them that looking at what is newer is not enough.
  local v = raise(math.max(revision(), tonumber(ARGV[2])) + 1)
  redis.call('HSET', MARKS, 'restored', text(v))
  push(ARGV[3], v)
end
return { text(restored) }

-- delete removes one client. Its live tokens stop.
--
-- ARGV[2] the client's id, ARGV[3] the revision it must have, ARGV[4] the
-- operation, ARGV[5] the greatest revision that the caller knows of, ARGV[6] and
-- ARGV[7] the longest lifetime of a token and the margin at its end in ms,
-- ARGV[8…] the fields of cu to be forgotten
--
-- Returns {status, revision, generation} as put does; the revision of a client
-- that is done with is that of its deletion.

local id, expected, op, known = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local doc = redis.call('HGET', DOCS, id)
if not doc then
  local v = string.match(redis.call('HGET', MARKS, 'deleted') or '', '^' .. op .. ' (%d+)$')
  if v then return { 'done', v, '0' } end
end
if revision() < known then return { 'behind', text(revision()), '0' } end
if not doc then return { 'missing', '0', '0' } end
local rev = head(doc)
if not rev then return { 'damaged', '0', '0' } end
if rev ~= expected then return { 'conflict', text(rev), '0' } end

redis.call('HDEL', DOCS, id)
if #ARGV > 7 then redis.call('HDEL', USED, unpack(ARGV, 8)) end
local v = raise(follow_up(id))
redis.call('ZADD', CHANGED, text(v), id)
redis.call('HSET', MARKS, 'deleted', op .. ' ' .. text(v))
stop(id, v, tonumber(ARGV[6]), tonumber(ARGV[7]))
push(id, v)
return { 'done', text(v), '0' }

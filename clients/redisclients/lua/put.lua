-- put writes the document of one client.
--
-- ARGV[2] the client's id, ARGV[3] the revision it must have, or "new" if it must
-- not exist, ARGV[4] the operation, ARGV[5] the greatest revision that the caller
-- knows of, ARGV[6] the document from behind the operation on, ARGV[7] its
-- generation, or "stop" to begin a new one, ARGV[8] and ARGV[9] the longest
-- lifetime of a token and the margin at its end in ms, ARGV[10…] the fields of cu
-- to be forgotten
--
-- Returns {status, revision, generation}: done, exists, missing, conflict (it has
-- another revision), behind (Redis has forgotten changes that the caller knows
-- of) or damaged (the document does not begin as it must).

local id, expected, op, known = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local doc = redis.call('HGET', DOCS, id)
local rev, before, last
if doc then
  rev, before, last = head(doc)
  if last == op then return { 'done', text(rev), text(before) } end
end
if revision() < known then return { 'behind', text(revision()), '0' } end
if doc then
  if expected == 'new' then return { 'exists', '0', '0' } end
  if not rev then return { 'damaged', '0', '0' } end
  if rev ~= tonumber(expected) then return { 'conflict', text(rev), '0' } end
elseif expected ~= 'new' then
  return { 'missing', '0', '0' }
end

if #ARGV > 9 then redis.call('HDEL', USED, unpack(ARGV, 10)) end
local v = raise(follow_up(id))
local gen = ARGV[7]
if gen == 'stop' then
  gen = text(v)
  stop(id, v, tonumber(ARGV[8]), tonumber(ARGV[9]))
end
redis.call('HSET', DOCS, id,
  '{"v":1,"rev":' .. text(v) .. ',"gen":' .. gen .. ',"op":"' .. op .. '",' .. ARGV[6])
redis.call('ZADD', CHANGED, text(v), id)
push(id, v)
return { 'done', text(v), gen }

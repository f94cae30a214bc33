-- changes lists what has changed, in the order of the changes.
--
-- ARGV[2] the revision after which to begin, ARGV[3] how many changes to list,
-- ARGV[4] whether to return the documents (1) or only that there are some (0)
--
-- Returns {revision, number of documents, number of entries in cs, when something
-- was last given back, then for each change: client id, revision, and the
-- document, '{' if there is one, or '' if there is none}.

primary_only()
local since, count = ARGV[2], tonumber(ARGV[3])

local list = redis.call('ZRANGEBYSCORE', CHANGED, '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, count)
if #list == 2 * count then
  -- Two histories that were joined after a loss may have used a revision twice:
  -- a page ends behind the last of them.
  local last = list[#list]
  while #list > 0 and list[#list] == last do
    list[#list] = nil
    list[#list] = nil
  end
  for _, v in ipairs(redis.call('ZRANGEBYSCORE', CHANGED, last, last, 'WITHSCORES')) do
    list[#list + 1] = v
  end
end

local reply = {
  text(revision()), text(redis.call('HLEN', DOCS)), text(redis.call('ZCARD', CHANGED)),
  redis.call('HGET', MARKS, 'restored') or '' }
for i = 1, #list, 2 do
  reply[#reply + 1] = list[i]
  reply[#reply + 1] = list[i + 1]
  if ARGV[4] == '1' then
    reply[#reply + 1] = redis.call('HGET', DOCS, list[i]) or ''
  else
    reply[#reply + 1] = redis.call('HEXISTS', DOCS, list[i]) == 1 and '{' or ''
  end
end
return reply

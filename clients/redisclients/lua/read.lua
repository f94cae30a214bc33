-- read returns clients as they are.
--
-- ARGV[2…] their ids
--
-- Returns for each: client id, revision of its last change, document or ''.

primary_only()
local reply = {}
for i = 2, #ARGV do
  reply[#reply + 1] = ARGV[i]
  reply[#reply + 1] = text(last_change(ARGV[i]))
  reply[#reply + 1] = redis.call('HGET', DOCS, ARGV[i]) or ''
end
return reply

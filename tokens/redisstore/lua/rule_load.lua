-- rule_load returns {now, field, value, field, value, …}.

primary_only()
local reply = redis.call('HGETALL', REV)
table.insert(reply, 1, text(now))
return reply

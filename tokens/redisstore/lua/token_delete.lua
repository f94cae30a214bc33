-- token_delete removes a token, and then tells the gateways: never the other way
-- round, or one of them would read it once more and keep it.
--
-- KEYS[1] the token's record; ARGV[1] the push channel, ARGV[2] the token's id
--
-- In a cluster this runs on the shard of the token: a message reaches subscribers
-- at every node. Returns why there was no push, '' if there was: the token is
-- gone all the same.

redis.call('DEL', KEYS[1])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local sent = redis.pcall('PUBLISH', ARGV[1], 'token ' .. ARGV[2] .. ' ' .. string.format('%.0f', now))
if type(sent) == 'table' and sent.err then return sent.err end
return ''

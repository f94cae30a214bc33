-- touch writes down when secrets were last used.
--
-- ARGV[2…] for each: the field of cu, the id of the client if it must be there,
-- else '', and the time in Unix seconds

for i = 2, #ARGV, 3 do
  local field, id, at = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local known = tonumber(redis.call('HGET', USED, field) or '') or 0
  if at > known and (id == '' or redis.call('HEXISTS', DOCS, id) == 1) then
    redis.call('HSET', USED, field, text(at))
  end
end
return {}

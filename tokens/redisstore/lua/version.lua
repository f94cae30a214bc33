-- version returns {revision, replication id}. The second changes whenever this
-- Redis may have forgotten something: restart, failover, a shard that moved. '-'
-- where Redis does not tell (miniredis, ACLs).

primary_only()
local info = redis.pcall('INFO', 'replication')
local replid = type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or '-'
return { redis.call('HGET', REV, 'v') or '', replid }

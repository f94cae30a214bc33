-- time reads the clock of the node that keeps the registry: in a cluster, TIME
-- itself would be answered by any node. The key only says where to ask.
return redis.call('TIME')

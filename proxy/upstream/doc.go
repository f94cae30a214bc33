// Package upstream knows the replicas of all services, and the health of each.
//
// A [Set] holds the upstreams of all routes. Each upstream is a scheme, host and port; each address
// that its name has is a replica, with a [transport.Transport] and a health of its own. A
// [Balancer] is what one route sends its requests to: [Balancer.Pick] chooses a replica, and
// [Balancer.Report] records the outcome of the attempt. Replicas survive a change of routes.
//
// A replica is ejected when connections to it fail, are reset, or bring no response, three times in a
// row; when its share of failures is an outlier among the replicas of the route; or when its health check
// fails. At least half of the replicas of a route stay, and one. If fewer are healthy, the route is in
// panic: it uses all that the checks do not call unhealthy. Without any replica, Pick returns a
// [NoReplicaError].
//
// All types are safe for concurrent use.
package upstream

// Package redislimit limits the rate of a client over all gateways together, without a round trip to
// Redis in a request.
//
// Each gateway has a copy of the theoretical arrival time of the client (see package limit),
// decides by this copy alone, and adds its own uses to it. Settlements run in the background: one
// script charges all uses since the last settlement to the arrival time in Redis, which is the sum
// of what all gateways have allowed, and returns it. A settlement starts when half of the credit of
// the client is used, when the copy is too old, and when a request is refused.
//
// # How exact it is
//
// The credit is a tenth of Rate.Count, at least 1: a gateway may have so many unsettled uses. A
// request beyond the credit waits for the settlement in flight, for at most [Config.MaxWait]. With
// N gateways, at most
//
//	Count + t × Count/Per + (N−1) × credit
//
// requests pass in any time t, plus those that the rate allows in one round trip to Redis. Requests
// that passed too early are charged all the same, so the average is exact. Nothing is taken in
// advance, so nothing is lost for a client that comes to one gateway only. Three gateways at 100/s
// let through 100 a second, and once up to 20 more.
//
// Debts are kept up to the credit of 16 gateways. With more gateways, a client that exceeds its
// rate on all of them at the same time is not charged for the rest.
//
// # When Redis is slow or away
//
// Then each gateway applies the full rate to its own requests, so N gateways may let through N times
// the rate. (A gateway cannot divide the rate, because it does not know how many gateways there are;
// and a client that uses only one of them would get less than its rate.) No request fails, and no
// request waits longer than MaxWait. Uses whose settlement failed are not settled again, because Redis
// may have charged them. The gateway tries again after [Config.Pause], with the next request of the
// client.
//
// If Redis loses the arrival times, or its clock steps forward, the uses on other gateways are
// lost; each gateway still counts its own. If the clock steps back, clients seem to have a larger
// debt, by the size of the step, but never more than the maximum debt.
package redislimit

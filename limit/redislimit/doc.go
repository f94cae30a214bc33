// Package redislimit limits the rate of a client over all gateways together, without a round trip to
// Redis in a request.
//
// Each gateway has a copy of the client's theoretical arrival time (see package
// limit), decides by it alone, and adds its own uses to it. In the background it
// settles: one script charges the uses that are not charged yet, in one number,
// to the arrival time in Redis, which is the sum of what all gateways let
// through, and brings it back. A settlement is due when half of the client's
// credit is used up, when the copy is older than it may be, and when a request is
// refused.
//
// # How exact it is
//
// The credit is a tenth of Rate.Count, at least 1: so many uses may be
// unsettled at one gateway. A request beyond it waits for the settlement that is
// on its way, for [Config.MaxWait] at most. With N gateways, at most
//
//	Count + t × Count/Per + (N−1) × credit
//
// requests pass in any time t, plus those that the rate allows in one round trip to Redis. Requests
// that passed too early are charged all the same, so the average is exact. Nothing is taken in
// advance, so nothing is lost for a client that comes to one gateway only. Three gateways at 100/s
// let through 100 a second, and once up to 20 more.
//
// Debts are remembered up to the credit of 16 gateways. With more, a client that
// overwhelms all of them at once is forgiven what is above that.
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
// Redis that lost the arrival times, or whose clock jumped ahead, forgets what was
// used elsewhere; each gateway still knows its own. A clock that jumps back makes
// clients look more in debt than they are, by the jump, and at most by the largest
// debt.
package redislimit

// Package route says which requests go where, and what they need for it: the routes, their policies, and
// the table that finds the route of a request.
//
// A [Route] is configuration. [NewTable] checks routes and compiles them into a [Table]; it reports every
// fault of every route together. [Table.Extend] adds routes of a source that is trusted less, such as the
// labels of containers: none of them can take a request that the table answers already.
//
// A table never changes and is safe for concurrent use. The package knows no connection and no request
// under way.
package route

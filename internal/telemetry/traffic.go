package telemetry

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// traffic counts the requests of all routes. There may be ten thousand routes. In metric vectors,
// each route would need dozens of objects with pointers, which the garbage collector follows again
// and again, and which are in no processor cache when a request comes. Here each route has one
// object without pointers, from which a scrape makes the metrics. So traffic is its own
// [prometheus.Collector]. It is safe for concurrent use.
type traffic struct {
	requests, duration *prometheus.Desc
	routes             sync.Map // of *routeTraffic by name

	mu      sync.Mutex
	inForce map[string]bool
	gone    []goneRoute // the route that went first comes first
}

// goneRoute is a route that is not in force any more, but still has counters.
type goneRoute struct {
	name  string
	since time.Time
}

// Limits on the counters of routes that have gone: container labels may make ever new names.
const (
	// goneFor is how long the counters stay, so that a scrape gets the last requests.
	goneFor = 5 * time.Minute
	// maxGone is the maximum number of gone routes with counters.
	maxGone = 256
)

// routeTraffic holds the counters of one route.
type routeTraffic struct {
	since        int64         // Unix time in nanoseconds
	forgotten    atomic.Bool   // no scrape shows these counters any more
	microseconds atomic.Uint64 // sum of all durations; enough for fifty years of ten thousand streams
	durations    [len(durationBounds) + 1]atomic.Uint64
	responses    [len(methods) + 1][classes]atomic.Uint64
}

// durationBounds are the upper bounds of the duration buckets. One more bucket has no bound.
var durationBounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// methods are the methods with their own label, the most frequent first.
var methods = [...]string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

// classes is the number of status classes: 1xx to 5xx, and class 0 for all others.
const classes = 6

// other is the label of all other methods and statuses.
const other = "other"

func newTraffic() *traffic {
	return &traffic{
		inForce: make(map[string]bool),
		requests: prometheus.NewDesc("snowgate_http_requests_total",
			"Requests that have ended, by route template, method and status class.",
			[]string{"route", "method", "status"}, nil),
		duration: prometheus.NewDesc("snowgate_http_request_duration_seconds",
			"Time from the request's head to the end of its response, by route template. Streams count with their whole duration.",
			[]string{"route"}, nil),
	}
}

// RouteTraffic counts the requests of one route. It saves a request the lookup of the counters. A
// route without requests takes no memory for counters. RouteTraffic is safe for concurrent use.
type RouteTraffic struct {
	all     *traffic
	name    string
	counted atomic.Pointer[routeTraffic] // nil: it has counted nothing yet
}

// Count counts one request that has ended.
func (t *RouteTraffic) Count(method string, status int, d time.Duration) {
	counted := t.counted.Load()
	if counted == nil || counted.forgotten.Load() {
		counted = t.all.ofRoute(t.name)
		t.counted.Store(counted)
	}
	counted.count(method, status, d)
}

// count counts one request that has ended.
func (r *routeTraffic) count(method string, status int, d time.Duration) {
	r.responses[methodIndex(method)][classOf(status)].Add(1)
	r.durations[bucketOf(d)].Add(1)
	r.microseconds.Add(uint64(max(d, 0) / time.Microsecond))
}

// of returns the counters of a route. It allocates only the first time.
func (t *traffic) of(route string) *routeTraffic {
	found, ok := t.routes.Load(route)
	if !ok {
		found, _ = t.routes.LoadOrStore(route, &routeTraffic{since: time.Now().UnixNano()})
	}
	return found.(*routeTraffic) //nolint:forcetypeassert // nothing else is stored
}

// ofRoute is of for a route that may have gone. Its last requests may end later.
func (t *traffic) ofRoute(name string) *routeTraffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.routes.Load(name)
	counted := t.of(name)
	if !known && !t.inForce[name] {
		t.leave(name)
	}
	return counted
}

// enter records that a route is in force.
func (t *traffic) enter(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inForce[name] = true
	t.gone = slices.DeleteFunc(t.gone, func(r goneRoute) bool { return r.name == name })
}

// quit records that a route is not in force any more.
func (t *traffic) quit(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.inForce[name] {
		return
	}
	delete(t.inForce, name)
	if _, counted := t.routes.Load(name); counted {
		t.leave(name)
	}
}

// leave adds a route with counters to the gone routes. t.mu is held.
func (t *traffic) leave(name string) {
	t.gone = append(t.gone, goneRoute{name, time.Now()})
	t.forget()
}

// forget drops the counters of routes that have been gone for goneFor, and of the first ones if
// there are too many. t.mu is held.
func (t *traffic) forget() {
	n := 0
	for n < len(t.gone) && (len(t.gone)-n > maxGone || time.Since(t.gone[n].since) >= goneFor) {
		if dropped, ok := t.routes.LoadAndDelete(t.gone[n].name); ok {
			dropped.(*routeTraffic).forgotten.Store(true) //nolint:forcetypeassert // nothing else is stored
		}
		n++
	}
	t.gone = slices.Delete(t.gone, 0, n)
}

func methodIndex(method string) int {
	for i, known := range methods {
		if method == known {
			return i
		}
	}
	return len(methods)
}

// classOf returns the class 1 to 5 of a status, or 0 for all other statuses.
func classOf(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status / 100
}

func bucketOf(d time.Duration) int {
	for i, bound := range durationBounds {
		if d <= bound {
			return i
		}
	}
	return len(durationBounds)
}

// Describe implements [prometheus.Collector].
func (t *traffic) Describe(descs chan<- *prometheus.Desc) {
	descs <- t.requests
	descs <- t.duration
}

// Collect implements [prometheus.Collector]. A request that ends during a scrape may be in one
// metric of its route and not yet in another.
func (t *traffic) Collect(metrics chan<- prometheus.Metric) {
	t.mu.Lock()
	t.forget()
	t.mu.Unlock()
	for name, value := range t.routes.Range {
		route, _ := name.(string)
		r, _ := value.(*routeTraffic)
		since := time.Unix(0, r.since)
		for i := range r.responses {
			method := other
			if i < len(methods) {
				method = methods[i]
			}
			for class := range r.responses[i] {
				if n := r.responses[i][class].Load(); n > 0 {
					metrics <- prometheus.MustNewConstMetricWithCreatedTimestamp(t.requests, prometheus.CounterValue, float64(n), since,
						route, method, className(class))
				}
			}
		}
		if count, buckets := r.histogram(); count > 0 {
			sum := float64(r.microseconds.Load()) / 1e6
			metrics <- prometheus.MustNewConstHistogramWithCreatedTimestamp(t.duration, count, sum, buckets, since, route)
		}
	}
}

func className(class int) string {
	if class == 0 {
		return other
	}
	return strconv.Itoa(class) + "xx"
}

// histogram returns the number of durations, and the number up to each bound in seconds.
func (r *routeTraffic) histogram() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(durationBounds))
	for i, bound := range durationBounds {
		count += r.durations[i].Load()
		buckets[bound.Seconds()] = count
	}
	return count + r.durations[len(durationBounds)].Load(), buckets
}

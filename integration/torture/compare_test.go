package torture_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A difference is one thing that the two proxies have made differently. cause is the access line of
// our side, if the exchange differs without a reason so far.
type difference struct{ what, ours, theirs, cause string }

func (d difference) String() string {
	return fmt.Sprintf("%s: ours %.300q, that of net/http %.300q%s", d.what, d.ours, d.theirs, d.cause)
}

// differences is a list in the making.
type differences []difference

func (l *differences) add(what string, ours, theirs any) {
	a, b := fmt.Sprint(ours), fmt.Sprint(theirs)
	if a != b {
		*l = append(*l, difference{what: what, ours: a, theirs: b})
	}
}

func (l *differences) addHeaders(what string, ours, theirs http.Header) {
	names := map[string]bool{}
	for name := range ours {
		names[name] = true
	}
	for name := range theirs {
		names[name] = true
	}
	for name := range names {
		l.add(what+" "+name, strings.Join(ours[name], "|"), strings.Join(theirs[name], "|"))
	}
}

// compare returns what differs.
func compare(e *exchange, ours, theirs *record) []difference {
	var l differences
	a, b := &ours.outcome, &theirs.outcome
	if a.end == own && b.end == whole {
		return append(l, difference{what: "refused", ours: fmt.Sprint(a.status), theirs: fmt.Sprint(b.status)})
	}
	if e.clientAborts() || e.upgrade && e.response.abortAt >= 0 {
		return l // one side leaves while the other sends: all else is a race; see absolute
	}
	l.add("end", a.class(e), b.class(e))
	if a.end != whole || b.end != whole {
		if a.end == own && b.end == own {
			l.add("status of its own", a.status, b.status)
		}
		if e.wrongRequest == nil { // else the service gets as much of it as the proxy has sent by then
			l.compareArrivals(e, ours, theirs)
		}
		return l
	}
	if e.switches && a.status != b.status {
		return append(l, difference{what: "switched", ours: fmt.Sprint(a.status), theirs: fmt.Sprint(b.status)})
	}
	l.add("status", a.status, b.status)
	l.add("interim responses", strings.Join(a.interims, "\n"), strings.Join(b.interims, "\n"))
	l.add("response body", a.body.digest(), b.body.digest())
	l.add("closes", a.closes, b.closes)
	l.addHeaders("response field", a.header, b.header)
	l.addHeaders("response trailer", a.trailer, b.trailer)
	l.compareArrivals(e, ours, theirs)
	return l
}

// class tells how the exchange ended, as far as that is certain: if the connection of the service
// was reset, what it had sent may be lost.
func (o *outcome) class(e *exchange) string {
	switch {
	case (e.odd != "" || e.wrongRequest != nil) && o.end != whole && o.end != hung:
		return "refused" // the server of both closes the connection with bytes left to be read, which is a reset
	case e.wrongResponse != nil && o.end == closed: // what was kept back of the response is not sent
		return broke
	case e.response.reset && e.response.abortAt >= 0 && o.end != whole && o.end != hung,
		o.end == closed && o.status == 0 && e.response.abortAt >= e.response.head:
		return broke
	}
	return o.end
}

func (l *differences) compareArrivals(e *exchange, ours, theirs *record) {
	l.add("arrivals", len(ours.arrivals), len(theirs.arrivals))
	if len(ours.arrivals) == 0 || len(theirs.arrivals) == 0 {
		return
	}
	a, b := ours.arrivals[len(ours.arrivals)-1], theirs.arrivals[len(theirs.arrivals)-1]
	l.add("request line", a.line, b.line)
	l.add("request framing", a.framing, b.framing)
	l.addHeaders("request field", a.header, b.header)
	l.add("end of the request body", a.end, b.end)
	if a.end == b.end && a.end == "whole" {
		l.add("request body", a.body.digest(), b.body.digest())
		l.addHeaders("request trailer", a.trailer, b.trailer)
	}
}

// absolute returns what must not be, whatever the other proxy does.
func absolute(e *exchange, r *record) (faults []string) {
	o := &r.outcome
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if fault := e.wrong(); fault != nil {
		return absoluteOfWrong(e, r)
	}
	if said := o.header.Get("X-Answer"); said != "" && said != e.text() {
		add("the response is that of exchange %q", said)
	}
	if o.body != nil && o.body.fault != "" {
		add("response: %s", o.body.fault)
	}
	if o.end == whole && e.method != http.MethodHead && e.response.coding != closing && o.body.n != e.response.size && !e.upgrade {
		add("response: the client takes %d bytes for all of %d", o.body.n, e.response.size)
	}
	if o.end == hung {
		add("the client waits in vain")
	}
	for _, a := range r.arrivals {
		if a.body.fault != "" {
			add("request: %s", a.body.fault)
		}
		if a.end == whole && a.body.n != e.request.size && !e.upgrade {
			add("request: the service takes %d bytes for all of %d", a.body.n, e.request.size)
		}
		if a.end == hung {
			add("the service waits in vain for the rest of the request")
		}
	}
	if !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}, e.method) && len(r.arrivals) > 1 {
		add("a %s was sent %d times", e.method, len(r.arrivals))
	}
	return faults
}

// absoluteOfWrong is the same for malformed messages.
func absoluteOfWrong(e *exchange, r *record) (faults []string) {
	o := &r.outcome
	if o.end == hung {
		faults = append(faults, "the client waits in vain")
	}
	if o.header.Get("X-Answer") == "smuggled" {
		faults = append(faults, "the client gets the response that was hidden in another one")
	}
	if e.wrongResponse != nil && e.wrongResponse.refused && o.end == whole {
		faults = append(faults, "the malformed response comes through as a whole one")
	}
	for _, a := range r.arrivals {
		if e.wrongRequest != nil && e.wrongRequest.refused && a.end == whole {
			faults = append(faults, "the malformed request comes through as a whole one")
		}
		if a.end == hung {
			faults = append(faults, "the service waits in vain for the rest of the request")
		}
	}
	return faults
}

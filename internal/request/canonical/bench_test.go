package canonical_test

import (
	"net/http"
	"net/url"
	"testing"

	"snowgate/internal/request/canonical"
)

// BenchmarkFromRequest measures the part that every request pays, whatever its route.
func BenchmarkFromRequest(b *testing.B) {
	for _, c := range []struct{ name, target string }{
		{"short", "/orders"},
		{"query", "/orders/4711/items?page=2&sort=date"},
		{"escaped", "/orders/caf%C3%A9%20au%20lait/items"},
	} {
		b.Run(c.name, func(b *testing.B) {
			u, err := url.ParseRequestURI(c.target)
			if err != nil {
				b.Fatal(err)
			}
			r := &http.Request{
				Method: http.MethodGet, URL: u, RequestURI: c.target, Host: "gateway.test:8080",
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := canonical.FromRequest(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHost(b *testing.B) {
	for _, host := range []string{"gateway.test", "gateway.test:8080", "[2001:db8::1]:8080"} {
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := canonical.Host(host); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// healthTimeout bounds the probe; Docker's default for a HEALTHCHECK is 30 s.
const healthTimeout = 2 * time.Second

func runHealth(ctx context.Context, p *process, args []string) error {
	flags := newFlags("health")
	url := flags.String("url", "", "`URL` to ask (default: /readyz at SNOWGATE_LISTEN)")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	if *url == "" {
		*url = readyURL(p.getenv("SNOWGATE_LISTEN"), p.getenv("SNOWGATE_TLS_CERT") != "")
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, *url, nil)
	if err != nil {
		return usageError{err}
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // no proxy either: it asks its own host
		// The certificate is made for the name that clients use, not for this
		// address; a probe of a public page needs no identity.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s %s", response.Status, body)
	if response.StatusCode != http.StatusOK {
		return errQuiet
	}
	return nil
}

// readyURL is where a gateway that listens on listen answers its own host.
func readyURL(listen string, secure bool) string {
	if _, _, err := net.SplitHostPort(listen); err != nil {
		listen = ":8080"
	}
	return localURL(listen, secure) + "/readyz"
}

// localURL is the base URL by which a listener is reached from its own host.
func localURL(listen string, secure bool) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		host, port = listen, ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// getenv returns the value of the variable called name, empty if it is unset.
func (p *process) getenv(name string) string {
	for _, entry := range p.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

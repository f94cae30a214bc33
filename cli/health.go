package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"slices"
	"time"

	"snowgate/config"
)

// healthTimeout bounds the probe; Docker's default for a HEALTHCHECK is 30 s.
const healthTimeout = 2 * time.Second

func runHealth(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("health")
	url := flags.String("url", "", "`URL` to ask (default: /readyz at SNOWGATE_LISTEN)")
	kind := flags.String("for", "", "ask about one `kind` of request only: decide or issue")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	if *url != "" && *kind != "" {
		return usageError{errors.New("-for has a use only without -url; append ?for=" + *kind + " to the URL")}
	}
	if !slices.Contains([]string{"", "decide", "issue"}, *kind) {
		return usageError{fmt.Errorf("health: -for %q: needs to be decide or issue", *kind)}
	}
	if *url == "" {
		*url = readyURL(p.getenv("SNOWGATE_LISTEN"), p.getenv("SNOWGATE_TLS_CERT") != "")
		if *kind != "" {
			*url += "?for=" + neturl.QueryEscape(*kind)
		}
	}
	if err := p.environFault(); err != nil {
		return usageError{err}
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
	fmt.Fprintf(p.Stdout, "%s %s", response.Status, body)
	if response.StatusCode != http.StatusOK {
		return errQuiet
	}
	return nil
}

// readyURL is the URL of /readyz, from the host of a gateway that listens on listen.
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

// getenv returns the value of the variable called name, or of the file that NAME_FILE names; empty
// if neither is set. A file that cannot be read is a fault, see [Process.environFault].
func (p *Process) getenv(name string) string {
	value, err := config.Value(p.Environ, name)
	if err != nil && !slices.ContainsFunc(p.faults, func(f error) bool { return f.Error() == err.Error() }) {
		p.faults = append(p.faults, err)
	}
	return value
}

// environFault returns what getenv could not read, nil if there was nothing.
func (p *Process) environFault() error { return errors.Join(p.faults...) }

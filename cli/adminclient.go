package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"snowgate/clients"
	"snowgate/config"
	"snowgate/handlers"
	"snowgate/handlers/admin"
	"snowgate/internal/problem"
)

const (
	// adminTimeout bounds each request of a command.
	adminTimeout = 30 * time.Second
	// maxResponse bounds what is read of a response, in bytes.
	maxResponse = 16 << 20
)

// adminFlags are the flags of the commands that speak to the admin API. Their
// defaults fit a command that runs beside the gateway, in its container or with
// its variables.
type adminFlags struct {
	adminURL, publicURL, clientID, output *string
}

func addAdminFlags(p *Process, flags *flag.FlagSet) *adminFlags {
	return &adminFlags{
		adminURL:  flags.String("admin-url", localURL(cmp.Or(p.getenv("SNOWGATE_ADMIN_LISTEN"), "127.0.0.1:9090"), false), "`URL` of the admin listener"),
		publicURL: flags.String("url", p.publicURL(), "`URL` of the gateway, where tokens are issued"),
		clientID:  flags.String("client-id", clients.AdminID, "`id` of the client to act as"),
		output:    flags.String("output", "table", "table or json"),
	}
}

// publicURL is where the gateway of this environment issues tokens. With TLS its
// certificate is made for the issuer's name.
func (p *Process) publicURL() string {
	secure := p.getenv("SNOWGATE_TLS_CERT") != ""
	if issuer := p.getenv("SNOWGATE_ISSUER"); secure && strings.HasPrefix(issuer, "https://") {
		return issuer
	}
	return localURL(cmp.Or(p.getenv("SNOWGATE_LISTEN"), "127.0.0.1:8080"), secure)
}

// check tells everything that is wrong with the flags.
func (f *adminFlags) check() error {
	var faults []error
	for name, text := range map[string]string{"admin-url": *f.adminURL, "url": *f.publicURL} {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
			faults = append(faults, fmt.Errorf("-%s: needs to be a URL like http://127.0.0.1:9090", name))
		}
	}
	if !clients.ValidID(*f.clientID) {
		faults = append(faults, fmt.Errorf("-client-id %q: %s", *f.clientID, idWanted))
	}
	if *f.output != "table" && *f.output != "json" {
		faults = append(faults, fmt.Errorf("-output %q: needs to be table or json", *f.output))
	}
	return errors.Join(faults...)
}

const idWanted = "needs 1 to 128 characters of A-Za-z0-9._~-"

// adminClient speaks to the admin API as one client.
type adminClient struct {
	base string
	http *http.Client
}

// connect returns an adminClient, or a usageError with all faults, those that
// the command itself found among them. It contacts nobody.
func (f *adminFlags) connect(ctx context.Context, p *Process, found ...error) (*adminClient, error) {
	secret, err := adminSecret(p.Environ)
	if faults := errors.Join(append(found, p.environFault(), f.check(), err)...); faults != nil {
		return nil, usageError{faults}
	}
	plain := &http.Client{
		Timeout: adminTimeout,
		// No redirect is followed: a token must not go to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	credentials := clientcredentials.Config{
		ClientID: *f.clientID, ClientSecret: secret,
		TokenURL:  strings.TrimSuffix(*f.publicURL, "/") + handlers.TokenPath,
		Scopes:    []string{clients.AdminScope},
		AuthStyle: oauth2.AuthStyleInHeader,
	}
	authorized := credentials.Client(context.WithValue(ctx, oauth2.HTTPClient, plain))
	authorized.Timeout, authorized.CheckRedirect = plain.Timeout, plain.CheckRedirect
	return &adminClient{base: strings.TrimSuffix(*f.adminURL, "/") + admin.Prefix, http: authorized}, nil
}

// adminSecret reads the secret from the variable that also bootstraps the first
// administrator.
func adminSecret(environ []string) (string, error) {
	const name = "ADMIN_CLIENT_SECRET"
	cfg, err := config.Load(onlyVariables(environ, name))
	if err != nil {
		return "", err
	}
	if !cfg.AdminClientSecret.IsSet() {
		return "", fmt.Errorf("%s%s or %[1]s%[2]s_FILE: needs to be set, to the secret of the client to act as", config.Prefix, name)
	}
	return cfg.AdminClientSecret.Reveal(), nil
}

// apiError is a refusal by the admin API.
type apiError struct {
	Status int
	Title  string          `json:"title"`
	Detail string          `json:"detail"`
	Faults []problem.Fault `json:"errors"`
}

// Error returns the detail and every fault in a line of its own.
func (e *apiError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the gateway responds with %d %s", e.Status, cmp.Or(e.Detail, e.Title))
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  %s", strings.TrimSpace(f.Pointer+" "+f.Detail))
	}
	return b.String()
}

// hasStatus reports whether err is a response with that status.
func hasStatus(err error, status int) bool {
	refused, ok := errors.AsType[*apiError](err)
	return ok && refused.Status == status
}

// call sends one request; path is relative to the API. in is its JSON body, none
// if it is nil; out receives that of the response and may be nil. ifMatch is the
// entity tag to insist on, or empty. Refusals are an *apiError.
func (c *adminClient) call(ctx context.Context, method, path, ifMatch string, in, out any) (http.Header, error) {
	body := new(bytes.Buffer)
	if in != nil {
		if err := json.NewEncoder(body).Encode(in); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if ifMatch != "" {
		request.Header.Set("If-Match", ifMatch)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, err
	}
	return response.Header, readResponse(response, text, out)
}

// readResponse puts the body of a good response into out, and makes an error of any
// other.
func readResponse(response *http.Response, text []byte, out any) error {
	if response.StatusCode/100 == 2 {
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(text, out); err != nil {
			return fmt.Errorf("the response of %s is not one of the admin API: %w", response.Request.URL.Host, err)
		}
		return nil
	}
	refused := &apiError{Status: response.StatusCode, Title: http.StatusText(response.StatusCode)}
	_ = json.Unmarshal(text, refused) // another server's response has no detail
	refused.Status = response.StatusCode
	return refused
}

// explain words the failure to get a token.
func explain(err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return err
	}
	if refused.ErrorCode == "" {
		return fmt.Errorf("getting a token: the gateway responds with %s; is -url that of the gateway?", refused.Response.Status)
	}
	return fmt.Errorf("getting a token: %s: %s", refused.ErrorCode, refused.ErrorDescription)
}

// clientPath is the path of a client in the API.
func clientPath(id string) string { return "/clients/" + url.PathEscape(id) }

// printJSON shows v for programs.
func printJSON(p *Process, v any) error {
	out := json.NewEncoder(p.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

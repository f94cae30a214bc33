package canonical

import (
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The reasons to refuse a request target before its path is parsed. Like those of [ParsePath], they
// are public.
var (
	ErrForm     = errors.New("the request target is neither a path nor an http or https URL")
	ErrFragment = errors.New("the request target has a fragment")
	ErrUserinfo = errors.New("the request target has userinfo")
	ErrSpace    = errors.New("the query has a space that must be percent-encoded")
	ErrMethod   = errors.New("the method is malformed")
)

// FromRequest parses the target of r as received (RFC 9112 §3.2): a path (origin-form), or an http
// or https URL (absolute-form), which is routed by its path. A URL without a path has the path "/"
// (RFC 9110 §4.2.3). FromRequest refuses the asterisk-form, the authority-form, and an invalid Host
// (see [Host]). It uses r.RequestURI and r.Host, and never r.URL. Its error is one of the reasons
// of this package and quotes nothing of the request.
//
// Over HTTP/2, net/http accepts requests that its HTTP/1.1 server refuses: methods that are not
// tokens, several Host fields, and a Host field that differs from :authority, which net/http then
// uses. FromRequest refuses them as malformed (RFC 9113 §8.3.1), and also a :path that is a URL.
func FromRequest(r *http.Request) (Path, error) {
	if r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method) { // a token (RFC 9110 §5.6.2); empty means GET
		return Path{}, ErrMethod
	}
	if r.ProtoMajor == 2 {
		if err := checkPseudo(r); err != nil {
			return Path{}, err
		}
	}
	path, err := targetPath(r.RequestURI)
	if err != nil {
		return Path{}, err
	}
	if _, err := Host(r.Host); err != nil {
		return Path{}, err
	}
	return ParsePath(path)
}

// checkPseudo checks the request that net/http made from :path and :authority of HTTP/2.
func checkPseudo(r *http.Request) error {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return ErrForm
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host {
		return ErrHost
	}
	return nil
}

// targetPath returns the path of a request target. It refuses a space in the query, which would end
// the target for a service that splits the request line at spaces.
func targetPath(target string) (string, error) {
	if strings.Contains(target, "#") {
		return "", ErrFragment
	}
	target, query, _ := strings.Cut(target, "?")
	if strings.Contains(query, " ") {
		return "", ErrSpace
	}
	if strings.HasPrefix(target, "/") {
		return target, nil
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return "", ErrForm
	}
	authority, path := rest, "/"
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(authority, "@") {
		return "", ErrUserinfo
	}
	if _, err := Host(authority); err != nil {
		return "", err
	}
	return path, nil
}

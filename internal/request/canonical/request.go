package canonical

import (
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The reasons for which a request target is refused before its path is read.
// Like those of [ParsePath] they are fit for the caller.
var (
	ErrForm     = errors.New("the request target is neither a path nor an http or https URL")
	ErrFragment = errors.New("the request target has a fragment")
	ErrUserinfo = errors.New("the request target has userinfo")
	ErrSpace    = errors.New("the query has a space that must be percent-encoded")
	ErrMethod   = errors.New("the method is malformed")
)

// FromRequest reads the target of r as it was received (RFC 9112 §3.2): a path
// (origin-form) or an http or https URL (absolute-form), which routes like its
// path; an URL without a path has the path "/" (RFC 9110 §4.2.3). The
// asterisk-form and the authority-form are refused, and so is a request whose
// Host is not one (see [Host]). It reads r.RequestURI and r.Host and never r.URL.
// Its error is one of the reasons of this package, never text of the caller's.
//
// Over HTTP/2 net/http lets through what its HTTP/1.1 server refuses: methods that
// are no token, several Host fields, and one that differs from :authority, whose
// name it takes. They are malformed (RFC 9113 §8.3.1), and so is a :path that is a
// URL.
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

// checkPseudo looks at what :path and :authority of HTTP/2 have become.
func checkPseudo(r *http.Request) error {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return ErrForm
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host {
		return ErrHost
	}
	return nil
}

// targetPath cuts the path out of a request target. A space in the query would end
// the target for a service that reads the request line word by word.
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

package canonical

import (
	"errors"
	"net/http"
	"strings"
)

// The reasons for which a request target is refused before its path is read.
// Like those of [ParsePath] they are fit for the caller.
var (
	ErrForm     = errors.New("the request target is neither a path nor an http or https URL")
	ErrFragment = errors.New("the request target has a fragment")
	ErrUserinfo = errors.New("the request target has userinfo")
)

// FromRequest reads the target of r as it was received (RFC 9112 §3.2): a path
// (origin-form) or an http or https URL (absolute-form), which routes like its
// path; an URL without a path has the path "/" (RFC 9110 §4.2.3). The
// asterisk-form and the authority-form are refused, and so is a request whose
// Host is not one (see [Host]). It reads r.RequestURI and r.Host and never r.URL.
// Its error is one of the reasons of this package, never text of the caller's.
func FromRequest(r *http.Request) (Path, error) {
	path, err := targetPath(r.RequestURI)
	if err != nil {
		return Path{}, err
	}
	if _, err := Host(r.Host); err != nil {
		return Path{}, err
	}
	return ParsePath(path)
}

// targetPath cuts the path out of a request target.
func targetPath(target string) (string, error) {
	if strings.Contains(target, "#") {
		return "", ErrFragment
	}
	target, _, _ = strings.Cut(target, "?")
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

package conformance

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

// player plays the exchanges of one case. Within it, a placeholder that makes a
// token stands for the same token wherever it is written again.
type player struct {
	t       *testing.T
	gateway *gateway
	tokens  map[string]string
}

// placeholder is a name and, after a space, an argument. The innermost are
// expanded first.
var placeholder = regexp.MustCompile(`\{([a-z]+)(?: ([^{}]*))?\}`)

// expand fills in the placeholders of a request, or of the expected answer,
// where matchers are left for later:
//
//	{host} {issuer}           authority of the gateway; its issuer identifier
//	{secret ID}               secret of a client
//	{basic ID} {basic TEXT}   Basic credentials of a client; of any text with a colon
//	{token ID} {token ID&x=y} a token of a client; further parameters to ask for it with
//	{id ID&x=y}               the public id of that token
//	{revoked ID} {expired}    a token that was revoked; one whose time is over
//	{damaged ID}              {token ID} with its last character changed
//	{encode TEXT}             every byte as %XX
//	{bytes HEX}               bytes as they are
//	{repeat N TEXT}           TEXT N times
func (p *player) expand(text string) string {
	p.t.Helper()
	for range 3 { // deep enough
		text = placeholder.ReplaceAllStringFunc(text, func(found string) string {
			part := placeholder.FindStringSubmatch(found)
			if matchers[part[1]] != nil {
				return found
			}
			value, err := p.value(part[1], part[2])
			if err != nil {
				p.t.Fatalf("%s: %v", found, err)
			}
			return value
		})
	}
	return text
}

func (p *player) value(name, argument string) (string, error) {
	switch name {
	case "host":
		return p.gateway.Addr, nil
	case "issuer":
		return p.gateway.issuer, nil
	case "expired":
		return p.gateway.expired(), nil
	case "secret":
		return p.client(argument).Secret, nil
	case "basic":
		if !strings.Contains(argument, ":") {
			argument += ":" + p.client(argument).Secret
		}
		return base64.StdEncoding.EncodeToString([]byte(argument)), nil
	case "encode":
		return percent(argument), nil
	case "bytes":
		raw, err := hex.DecodeString(argument)
		return string(raw), err
	case "repeat":
		count, text, _ := strings.Cut(argument, " ")
		n, err := strconv.Atoi(count)
		return strings.Repeat(text, n), err
	default:
		return p.tokenValue(name, argument)
	}
}

func (p *player) tokenValue(name, argument string) (string, error) {
	switch name {
	case "token":
		return p.token("", argument), nil
	case "id":
		return p.token("", argument)[len("sgt_"):][:11], nil
	case "damaged":
		token := p.token("", argument)
		last := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(token, "0")]
		return token[:len(token)-1] + last, nil
	case "revoked":
		token := p.token("revoked", argument)
		if status, body := p.gateway.Post("/oauth2/revoke", p.client(argument), "token", token); status != http.StatusOK {
			return "", fmt.Errorf("revoke = %d %s", status, body)
		}
		return token, nil
	default:
		return "", fmt.Errorf("no such placeholder")
	}
}

// token gets a token once; kind keeps those apart that are to be different.
func (p *player) token(kind, asked string) string {
	p.t.Helper()
	if token, ok := p.tokens[kind+asked]; ok {
		return token
	}
	id, parameters, _ := strings.Cut(asked, "&")
	values, err := url.ParseQuery(parameters)
	if err != nil {
		p.t.Fatal(err)
	}
	var form []string
	for name, list := range values {
		for _, value := range list {
			form = append(form, name, value)
		}
	}
	token := p.gateway.Token(p.client(id), form...)
	p.tokens[kind+asked] = token
	return token
}

func (p *player) client(id string) gatewaytest.Credentials {
	p.t.Helper()
	c, ok := p.gateway.clients[id]
	if !ok {
		p.t.Fatalf("there is no client %q", id)
	}
	return c
}

func percent(text string) string {
	var encoded strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&encoded, "%%%02X", text[i])
	}
	return encoded.String()
}

// wire makes the bytes of a request: line ends, and the fields that a case leaves
// out.
func (p *player) wire(request string) string {
	lines, body, _ := split(request)
	for i := range lines {
		lines[i] = p.expand(lines[i])
	}
	body = p.expand(body)
	named := strings.ToLower("\n" + strings.Join(lines, "\n"))
	fill := func(name, value string) {
		if !strings.Contains(named, "\n"+strings.ToLower(name)+":") {
			lines = append(lines, name+": "+value)
		}
	}
	fill("Host", p.gateway.Addr)
	fill("Connection", "close")
	if body != "" && !strings.Contains(named, "\ntransfer-encoding:") {
		fill("Content-Length", strconv.Itoa(len(body)))
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

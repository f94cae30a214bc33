package gatewaytest

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"snowgate/clients"
)

// TestSearch: a search that finds nothing must be able to find something, and nothing else.
func TestSearch(t *testing.T) {
	secret, _ := clients.NewSecret()
	other, _ := clients.NewSecret()
	text := secret.Reveal()
	for _, id := range []string{"a", "ab", "abc", "worker", "a-long-name.of_a~client"} {
		s := newSecretTexts()
		s.addClient(id, text)
		basic := base64.StdEncoding.EncodeToString([]byte(id + ":" + text))
		for i := len("sgs_"); i+pieceLen <= len(text); i++ {
			if s.search("x", `{"path":"/`+text[i:i+pieceLen]+`"}`) == "" {
				t.Errorf("a piece of the secret from %d was not found", i)
			}
		}
		if s.search("x", "Basic "+basic) == "" {
			t.Errorf("Basic credentials of %s were not found", id)
		}
		for _, clean := range []string{
			"", "sgs_", id, other.Reveal(), basic[:len(id)*4/3], text[:12], strings.Repeat(text[4:4+pieceLen-1]+" ", 3),
			base64.StdEncoding.EncodeToString([]byte(id + ":" + other.Reveal())), strings.Repeat("a", 1000),
		} {
			if find := s.search("x", clean); find != "" {
				t.Errorf("in %q: %s", clean, find)
			}
		}
	}
}

// TestInspect: responses teach secrets, and refusals must not hold them.
func TestInspect(t *testing.T) {
	s := newSecretTexts()
	token := "sgt_0123456789A_" + strings.Repeat("abcdefghi", 6)
	s.inspect(http.StatusOK, nil, `{"access_token":"`+token+`"}`)
	s.inspect(http.StatusOK, nil, "an echo of "+token)
	s.inspect(http.StatusNotFound, http.Header{"X-Id": {"sgt_0123456789A"}}, "the token 0123456789A is not there")
	if finds := s.take(); len(finds) != 0 {
		t.Errorf("found %q where nothing is", finds)
	}
	s.inspect(http.StatusNotFound, nil, "no "+token[20:40]+" here")
	s.inspect(http.StatusUnauthorized, http.Header{"Www-Authenticate": {"Bearer " + token}}, "")
	s.inspectRaw("HTTP/1.1 400 Bad Request\r\nContent-Length: 70\r\n\r\n" + token)
	if finds := s.take(); len(finds) != 3 {
		t.Errorf("found %q, want one find in each of three refusals", finds)
	}
	if finds := s.take(); len(finds) != 0 {
		t.Errorf("told a second time: %q", finds)
	}
}

// TestLearnEnv: what a gateway is given.
func TestLearnEnv(t *testing.T) {
	s := newSecretTexts()
	secret, _ := clients.NewSecret()
	s.learnEnv([]string{"SNOWGATE_ADMIN_CLIENT_SECRET=" + secret.Reveal(), "SNOWGATE_REDIS_URL=redis://:0123456789abcdef@x:1/0", "SNOWGATE_TOKEN_KEY=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="})
	for _, text := range []string{secret.Reveal(), "redis://:0123456789abcdef@x", "BgcICQoLDA0ODxAREhMUFRYXG"} {
		if s.search("x", text) == "" {
			t.Errorf("%s was not found", text)
		}
	}
}

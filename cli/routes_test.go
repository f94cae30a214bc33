package cli

import (
	"strings"
	"testing"
)

func TestRoutesCommand(t *testing.T) {
	s := newScript(t, map[string][]reply{"GET /routes": good(`{"routes":[
		{"name":"orders","source":"file","path":"/orders","scopes":["orders.read"],"upstreams":["http://orders:8080"],
		 "replicas":[{"address":"10.0.0.2:8080","healthy":true},{"address":"10.0.0.3:8080","reason":"GET /h was answered with status 503"}]},
		{"name":"inventory","source":"docker","owner":"shop/inventory","path":"/inventory","public":true,"replicas":[]},
		{"name":"auth","source":"file","host":"a.example","path":"/","replicas":[]}],
		"discovery":{"source":"docker","up":true,
		 "containers":[{"name":"shop-a-1","owner":"shop/a","state":"serving"},{"name":"shop-b-1","owner":"shop/b","state":"waiting","reason":"it is paused"},
		  {"name":"shop-c-1","owner":"shop/c","state":"rejected","reason":"add the label snowgate.port=PORT"}],
		 "refused":[{"name":"x","owner":"shop/x\u001b","reason":"it is in the way of orders"}]}}`)})
	const left = `LEFT OUT  OWNER    STATE     REASON
shop-c-1  shop/c   rejected  add the label snowgate.port=PORT
route x   shop/x�  refused   it is in the way of orders
`
	const all = `ROUTE      SOURCE          HOST       PATH        NEEDS        REPLICAS
orders     file            any        /orders     orders.read  1 of 2; 10.0.0.3:8080: GET /h was answered with status 503
inventory  shop/inventory  any        /inventory  nothing      0 of 0
auth       file            a.example  /           a token      forward-auth only
`
	if code, stdout, stderr := s.call("routes"); code != exitOK || stdout != all+strings.Replace(left, "shop-c-1", "shop-b-1  shop/b   waiting   it is paused\nshop-c-1", 1) {
		t.Errorf("routes: %d %s\n%s", code, stderr, stdout)
	}
	if code, stdout, stderr := s.call("routes", "-rejected"); code != exitFailed || stdout != left || stderr != "" {
		t.Errorf("routes -rejected: %d %s\n%s", code, stderr, stdout)
	}
	if code, stdout, _ := s.call("routes", "-output", "json"); code != exitOK || !strings.Contains(stdout, `"owner": "shop/inventory"`) {
		t.Errorf("routes -output json: %d %s", code, stdout)
	}
	s = newScript(t, map[string][]reply{"GET /routes": good(`{"routes":[]}`)})
	if code, _, stderr := s.call("routes", "-rejected"); code != exitFailed || !strings.Contains(stderr, "SNOWGATE_DOCKER_HOST") {
		t.Errorf("without discovery: %d %s", code, stderr)
	}
}

package integration_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// callee is a service written with grpc-go. It does what the interoperability
// tests of gRPC ask of one, and tells how its streams ended.
type callee struct {
	grpc_testing.UnimplementedTestServiceServer
	told  atomic.Pointer[metadata.MD] // with the last unary call
	ended chan error                  // of calls that last
}

func (s *callee) UnaryCall(ctx context.Context, in *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	told, _ := metadata.FromIncomingContext(ctx)
	s.told.Store(&told)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", "1", "x-head-bin", "\x00\xff"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "2", "x-tail-bin", "\x00\xfe", "x-snowgate-client", "leaks"))
	if code := in.GetResponseStatus().GetCode(); code != 0 {
		response, err := status.New(codes.Code(code), in.GetResponseStatus().GetMessage()).WithDetails(grpcPayload(100))
		if err != nil {
			return nil, err
		}
		return nil, response.Err()
	}
	return &grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: in.GetPayload().GetBody()}}, nil
}

// EmptyCall lasts until the caller gives up.
func (s *callee) EmptyCall(ctx context.Context, _ *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

func (s *callee) StreamingInputCall(stream grpc_testing.TestService_StreamingInputCallServer) error {
	var sum int32
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: sum})
		}
		if err != nil {
			return err
		}
		sum += int32(len(in.GetPayload().GetBody()))
	}
}

func (s *callee) StreamingOutputCall(in *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer) error {
	for _, parameters := range in.GetResponseParameters() {
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: grpcPayload(int(parameters.GetSize()))}); err != nil {
			return err
		}
	}
	return nil
}

func (s *callee) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			stream.SetTrailer(metadata.Pairs("x-tail", "2"))
			s.ended <- nil
			return nil
		}
		if err == nil {
			err = stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: in.GetPayload()})
		}
		if err != nil {
			s.ended <- err
			return err
		}
	}
}

func grpcPayload(size int) *grpc_testing.Payload {
	return &grpc_testing.Payload{Body: bytes.Repeat([]byte("x"), size)}
}

// newCallee starts a service and returns the URL of its upstream; roots is a file
// with the certificate to trust, empty for h2c.
func newCallee(t *testing.T, secure bool) (s *callee, url, roots string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener = cuttest.Listener(listener)
	s = &callee{ended: make(chan error, 100)}
	url = "h2c://" + listener.Addr().String()
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(16 << 20)}
	if secure {
		lender := httptest.NewTLSServer(nil) // of a certificate for 127.0.0.1
		lender.Close()
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&lender.TLS.Certificates[0])))
		roots = filepath.Join(t.TempDir(), "roots.pem")
		writePEM(t, roots, "CERTIFICATE", lender.Certificate().Raw)
		url = "https://" + listener.Addr().String()
	}
	server := grpc.NewServer(options...)
	grpc_testing.RegisterTestServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s, url, roots
}

// caller is a client of a callee behind a gateway.
type caller struct {
	grpc_testing.TestServiceClient
	*gatewaytest.Gateway
	service *callee
	worker  gatewaytest.Credentials
	token   string
	conn    *grpc.ClientConn
}

// newCaller starts a gateway that listens with TLS or for HTTP/2 without, in front
// of a service with or without TLS.
func newCaller(t *testing.T, listenTLS, upstreamTLS bool, worker gatewaytest.Credentials, routes ...string) *caller {
	t.Helper()
	service, url, roots := newCallee(t, upstreamTLS)
	c := &caller{service: service, worker: worker}
	var env []string
	if upstreamTLS {
		env = append(env, "SSL_CERT_FILE="+roots)
	}
	transport := insecure.NewCredentials()
	if listenTLS {
		pair := newKeyPair(t)
		pair.write(t, 8)
		env = append(env, "SNOWGATE_TLS_CERT="+pair.cert, "SNOWGATE_TLS_KEY="+pair.key)
		transport = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	} else {
		env = append(env, "SNOWGATE_H2C=true")
	}
	routes = append([]string{`{name: grpc, path: /grpc.testing.TestService, upstreams: ["` + url + `"], scopes: [svc], max_body: 0}`}, routes...)
	c.Gateway = gatewaytest.Start(t, gatewaytest.Options{Env: env, Config: fileOf([]gatewaytest.Credentials{worker}, routes...)})
	c.token = c.issue(t, listenTLS)
	c.connect(t, transport)
	return c
}

// callerOf returns a client of a callee behind g, which must speak HTTP/2 without
// TLS.
func callerOf(t *testing.T, g *gatewaytest.Gateway, service *callee, token string) *caller {
	t.Helper()
	c := &caller{Gateway: g, service: service, token: token}
	c.connect(t, insecure.NewCredentials())
	return c
}

func (c *caller) connect(t *testing.T, transport credentials.TransportCredentials) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.Addr, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.conn, c.TestServiceClient = conn, grpc_testing.NewTestServiceClient(conn)
}

// issue gets a token, by whatever the listener speaks.
func (c *caller) issue(t *testing.T, secure bool) string {
	t.Helper()
	if secure {
		c.URL = "https://" + c.Addr
	}
	form := "grant_type=client_credentials&client_id=" + c.worker.ID + "&client_secret=" + c.worker.Secret
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	response, err := transport.RoundTrip(c.form("/oauth2/token", form))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.AccessToken == "" {
		t.Fatalf("POST /oauth2/token = %d, %v", response.StatusCode, err)
	}
	return answer.AccessToken
}

func (c *caller) form(path, text string) *http.Request {
	request := c.Request(http.MethodPost, path, strings.NewReader(text))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request
}

func (c *caller) context(t *testing.T, more ...string) context.Context {
	t.Helper()
	within := 20 * time.Second
	if cuttest.Current() != cuttest.Whole {
		within *= 6 // megabytes in small pieces take a while
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, append(more, "authorization", "Bearer "+c.token)...)
}

// awaitEnd returns how a call ended for the service.
func (c *caller) awaitEnd(t *testing.T, what string) error {
	t.Helper()
	select {
	case err := <-c.service.ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: for the service it does not end", what)
		return nil
	}
}

// TestGRPC goes through the interoperability tests of gRPC that concern what is on
// the wire (grpc/grpc doc/interop-test-descriptions.md), with grpc-go at both ends.
func TestGRPC(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		test func(*testing.T, *caller)
	}{
		{"large_unary", grpcLargeUnary}, {"custom_metadata", grpcMetadata}, {"client_streaming", grpcClientStreaming},
		{"server_streaming", grpcServerStreaming}, {"ping_pong", grpcPingPong}, {"empty_stream", grpcEmptyStream},
		{"status_code_and_message", grpcStatus}, {"unimplemented_method", grpcUnimplemented},
		{"cancel_after_begin", grpcCancelAfterBegin}, {"cancel_after_first_response", grpcCancelAfterAnswer},
		{"timeout_on_sleeping_server", grpcDeadline}, {"token_revoked", grpcRevoked},
	}
	for name, secure := range map[string][2]bool{"h2c to h2c": {false, false}, "TLS to h2c": {true, false}, "h2c to TLS": {false, true}, "TLS to TLS": {true, true}} {
		t.Run(name, func(t *testing.T) {
			c := newCaller(t, secure[0], secure[1], gatewaytest.NewClient("worker", "svc"))
			for _, test := range cases {
				t.Run(test.name, func(t *testing.T) { test.test(t, c) })
			}
		})
	}
}

func grpcLargeUnary(t *testing.T, c *caller) {
	const size = 4 << 20
	response, err := c.UnaryCall(c.context(t), &grpc_testing.SimpleRequest{Payload: grpcPayload(size)}, grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil || !bytes.Equal(response.GetPayload().GetBody(), grpcPayload(size).GetBody()) {
		t.Errorf("UnaryCall with 4 MiB = %d bytes, %v", len(response.GetPayload().GetBody()), err)
	}
}

func grpcMetadata(t *testing.T, c *caller) {
	var head, tail metadata.MD
	if _, err := c.UnaryCall(c.context(t, "x-own", "a", "x-own", "b", "x-own-bin", "\x00\x01\xff", "x-snowgate-client", "evil", "x_snowgate_client", "evil", "x-forwarded-user", "evil"),
		&grpc_testing.SimpleRequest{}, grpc.Header(&head), grpc.Trailer(&tail)); err != nil {
		t.Fatal(err)
	}
	told := *c.service.told.Load()
	if got := fmt.Sprintf("%q", []any{told["x-own"], told["x-own-bin"], told["x-snowgate-client"], told["x-snowgate-scope"], told["x_snowgate_client"], told["x-forwarded-user"], told["authorization"]}); got != `[["a" "b"] ["\x00\x01\xff"] ["worker"] ["svc"] [] [] []]` {
		t.Errorf("the service was told %s", got)
	}
	if got := fmt.Sprintf("%q", []any{head["x-head"], head["x-head-bin"], tail["x-tail"], tail["x-tail-bin"], tail["x-snowgate-client"]}); got != `[["1"] ["\x00\xff"] ["2"] ["\x00\xfe"] []]` {
		t.Errorf("the caller was told %s", got)
	}
}

func grpcClientStreaming(t *testing.T, c *caller) {
	stream, err := c.StreamingInputCall(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{27182, 8, 1828, 45904, 0, 2 << 20} {
		if err := stream.Send(&grpc_testing.StreamingInputCallRequest{Payload: grpcPayload(size)}); err != nil {
			t.Fatal(err)
		}
	}
	if response, err := stream.CloseAndRecv(); err != nil || response.GetAggregatedPayloadSize() != 27182+8+1828+45904+2<<20 {
		t.Errorf("StreamingInputCall = %d, %v", response.GetAggregatedPayloadSize(), err)
	}
}

func grpcServerStreaming(t *testing.T, c *caller) {
	request := &grpc_testing.StreamingOutputCallRequest{}
	for i := range 200 {
		request.ResponseParameters = append(request.ResponseParameters, &grpc_testing.ResponseParameters{Size: int32(i * 300)})
	}
	stream, err := c.StreamingOutputCall(c.context(t), request)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if got, err := stream.Recv(); err != nil || len(got.GetPayload().GetBody()) != i*300 {
			t.Fatalf("message %d = %d bytes, %v", i, len(got.GetPayload().GetBody()), err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

// echoes opens a stream and has one message come back, so that it stands.
func (c *caller) echoes(ctx context.Context, t *testing.T) grpc_testing.TestService_FullDuplexCallClient {
	t.Helper()
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: grpcPayload(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

func grpcPingPong(t *testing.T, c *caller) {
	stream := c.echoes(c.context(t), t)
	for i := range 50 { // each waits for the one before
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: grpcPayload(i * 1000)}); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || len(got.GetPayload().GetBody()) != i*1000 {
			t.Fatalf("message %d = %d bytes, %v", i, len(got.GetPayload().GetBody()), err)
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) || fmt.Sprint(stream.Trailer()["x-tail"]) != "[2]" {
		t.Errorf("the stream ended with %v and the trailer %v", err, stream.Trailer())
	}
	if err := c.awaitEnd(t, "ping_pong"); err != nil {
		t.Errorf("for the service the stream ended with %v", err)
	}
}

func grpcEmptyStream(t *testing.T, c *caller) {
	stream, err := c.FullDuplexCall(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream without a message ended with %v", err)
	}
	if err := c.awaitEnd(t, "empty_stream"); err != nil {
		t.Errorf("for the service it ended with %v", err)
	}
}

func grpcStatus(t *testing.T, c *caller) {
	const message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n" // special_status_message
	for _, code := range []codes.Code{codes.NotFound, codes.Unauthenticated, codes.Internal, codes.ResourceExhausted, codes.Unknown} {
		_, err := c.UnaryCall(c.context(t), &grpc_testing.SimpleRequest{ResponseStatus: &grpc_testing.EchoStatus{Code: int32(code), Message: message}})
		got := status.Convert(err)
		if got.Code() != code || got.Message() != message || len(got.Details()) != 1 || len(got.Details()[0].(*grpc_testing.Payload).GetBody()) != 100 {
			t.Errorf("the service's own status %v came as %v %q with %v", code, got.Code(), got.Message(), got.Details())
		}
	}
}

func grpcUnimplemented(t *testing.T, c *caller) {
	if _, err := c.UnimplementedCall(c.context(t), &grpc_testing.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("UnimplementedCall = %v, want Unimplemented", err)
	}
}

func grpcCancelAfterBegin(t *testing.T, c *caller) {
	ctx, cancel := context.WithCancel(c.context(t))
	stream, err := c.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.CloseAndRecv(); status.Code(err) != codes.Canceled {
		t.Errorf("a call that is cancelled at once = %v, want Canceled", err)
	}
}

func grpcCancelAfterAnswer(t *testing.T, c *caller) {
	ctx, cancel := context.WithCancel(c.context(t))
	stream := c.echoes(ctx, t)
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("a stream that is cancelled = %v, want Canceled", err)
	}
	if err := c.awaitEnd(t, "cancel_after_first_response"); status.Code(err) != codes.Canceled {
		t.Errorf("for the service it ended with %v, want Canceled", err)
	}
}

// grpcDeadline: the deadline of the caller is known to the service (grpc-timeout). Both
// count the same time. If the service is first, its reset comes through as a failure of
// the service; who is first is a matter of chance. The deadline is so late that the call
// has reached the service before, on a busy machine too.
func grpcDeadline(t *testing.T, c *caller) {
	for range 10 {
		ctx, cancel := context.WithTimeout(c.context(t), 2*time.Second)
		_, err := c.EmptyCall(ctx, &grpc_testing.Empty{})
		cancel()
		if err := c.awaitEnd(t, "timeout_on_sleeping_server"); err == nil {
			t.Error("the service was not told of the end")
		}
		switch status.Code(err) {
		case codes.DeadlineExceeded:
			return
		case codes.Unavailable:
		default:
			t.Fatalf("a call that lasts too long = %v, want DeadlineExceeded", err)
		}
	}
	t.Error("a call that lasts too long never ended with DeadlineExceeded")
}

// grpcRevoked: a stream ends with its token, as a failure at both ends.
func grpcRevoked(t *testing.T, c *caller) {
	old := c.token
	c.token = c.issue(t, strings.HasPrefix(c.URL, "https"))
	stream := c.echoes(c.context(t), t)
	request := c.form("/oauth2/revoke", "token="+c.token)
	request.SetBasicAuth(c.worker.ID, c.worker.Secret)
	c.token = old
	if got := askIn(t, only((*http.Protocols).SetHTTP1), request); got.StatusCode != http.StatusOK {
		t.Fatalf("POST /oauth2/revoke = %d", got.StatusCode)
	}
	_, err := stream.Recv()
	if code := status.Code(err); code != codes.Internal && code != codes.Unavailable && code != codes.Canceled && code != codes.Unknown {
		t.Errorf("the stream of a token that was revoked ended with %v, want a failure", err)
	}
	if err := c.awaitEnd(t, "token_revoked"); err == nil {
		t.Error("for the service it ended well")
	}
}

// TestGRPCStreamExpires is the same with a token that comes to its end.
func TestGRPCStreamExpires(t *testing.T) {
	t.Parallel()
	c := newCaller(t, false, false, gatewaytest.NewClient("brief", "svc", "token_ttl: 5s"))
	stream := c.echoes(c.context(t), t)
	if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream of a token that expired ended with %v, want a failure", err)
	}
	if err := c.awaitEnd(t, "expiry"); err == nil {
		t.Error("for the service it ended well")
	}
	if _, err := c.UnaryCall(c.context(t), &grpc_testing.SimpleRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call with it afterwards = %v, want Unauthenticated", err)
	}
}

// TestGRPCRefusals: the gateway speaks HTTP, not gRPC, when it answers itself.
// Clients make a status of that (grpc/grpc doc/http-grpc-status-mapping.md); here
// is which.
func TestGRPCRefusals(t *testing.T) {
	t.Parallel()
	const call = "/grpc.testing.TestService/"
	c := newCaller(t, false, false, gatewaytest.NewClient("worker", "svc"),
		`{name: dead, path: `+call+`UnimplementedCall, upstreams: ["`+strings.Replace(gatewaytest.ClosedPort(t), "http:", "h2c:", 1)+`"], scopes: [svc]}`,
		`{name: scoped, path: `+call+`CacheableUnaryCall, upstreams: ["h2c://127.0.0.1:1"], scopes: [other]}`,
		`{name: reading, path: `+call+`HalfDuplexCall, upstreams: ["h2c://127.0.0.1:1"], scopes: [svc], methods: [GET]}`,
		`{name: rare, path: `+call+`StreamingInputCall, upstreams: ["h2c://127.0.0.1:1"], scopes: [svc], rate: 1/h}`)
	good, none := c.context(t), t.Context()
	ask := func(ctx context.Context, method string) error {
		return c.conn.Invoke(ctx, method, &grpc_testing.Empty{}, &grpc_testing.Empty{})
	}
	_ = ask(good, call+"StreamingInputCall") // the one in the hour
	tests := []struct {
		name   string
		ctx    context.Context
		method string
		want   codes.Code
	}{
		{"no token: 401", none, call + "UnaryCall", codes.Unauthenticated},
		{"a bad token: 401", metadata.AppendToOutgoingContext(none, "authorization", "Bearer x"), call + "UnaryCall", codes.Unauthenticated},
		{"two tokens: 400", metadata.AppendToOutgoingContext(good, "authorization", "Bearer x"), call + "UnaryCall", codes.Internal},
		{"a scope is missing: 403", good, call + "CacheableUnaryCall", codes.PermissionDenied},
		{"no route: 404", good, "/elsewhere.Service/Call", codes.Unimplemented},
		{"a method that is not allowed: 405", good, call + "HalfDuplexCall", codes.Unknown},
		{"too many requests: 429", good, call + "StreamingInputCall", codes.Unavailable},
		{"the service is away: 502", good, call + "UnimplementedCall", codes.Unavailable},
	}
	for _, test := range tests {
		if err := ask(test.ctx, test.method); status.Code(err) != test.want {
			t.Errorf("%s = %v, want %v", test.name, err, test.want)
		}
	}
	if told := c.service.told.Load(); told != nil {
		t.Errorf("a call got to the service, with %v", *told)
	}
}

package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"snowgate/proxy/route"
	"snowgate/tokens"
)

// grpcService answers with what it was told.
type grpcService struct {
	grpc_testing.UnimplementedTestServiceServer
	told  chan metadata.MD
	ended chan error // how a stream ended
}

func (s *grpcService) UnaryCall(ctx context.Context, in *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	told, _ := metadata.FromIncomingContext(ctx)
	s.told <- told
	if code := in.GetResponseStatus().GetCode(); code != 0 {
		return nil, status.Error(codes.Code(code), in.GetResponseStatus().GetMessage())
	}
	_ = grpc.SendHeader(ctx, metadata.Pairs("x-head", "1"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "2", "x-snowgate-client", "leaks"))
	return &grpc_testing.SimpleResponse{Payload: in.GetPayload()}, nil
}

func (s *grpcService) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			s.ended <- err
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			s.ended <- err
			return err
		}
	}
}

func (s *grpcService) StreamingOutputCall(_ *grpc_testing.StreamingOutputCallRequest, stream grpc_testing.TestService_StreamingOutputCallServer) error {
	for range 100 {
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: payload(strings.Repeat("x", 10_000))}); err != nil {
			return err
		}
	}
	return nil
}

func payload(text string) *grpc_testing.Payload { return &grpc_testing.Payload{Body: []byte(text)} }

// newGRPC returns a client of a service behind a gateway.
func newGRPC(t *testing.T, o gatewayOptions) (grpc_testing.TestServiceClient, *grpcService) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &grpcService{told: make(chan metadata.MD, 10), ended: make(chan error, 10)}
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	spec := protected(&url.URL{Scheme: "h2c", Host: listener.Addr().String()})
	spec.Path = "/grpc.testing.TestService"
	o.http2 = true
	g := newGateway(t, o, spec)
	conn, err := grpc.NewClient("passthrough:///"+g.address(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_testing.NewTestServiceClient(conn), service
}

func withToken(t *testing.T, more ...string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, append(more, "authorization", "Bearer "+goodText)...)
}

func TestGRPCUnary(t *testing.T) {
	client, service := newGRPC(t, gatewayOptions{})
	var head, tail metadata.MD
	response, err := client.UnaryCall(withToken(t, "x-snowgate-client", "evil", "x_snowgate_client", "evil", "x-own", "passes"),
		&grpc_testing.SimpleRequest{Payload: payload("hello")}, grpc.Header(&head), grpc.Trailer(&tail))
	if err != nil || string(response.GetPayload().GetBody()) != "hello" {
		t.Fatalf("UnaryCall = %v, %v", response, err)
	}
	told := <-service.told
	if got := fmt.Sprint(told["x-snowgate-client"], told["x_snowgate_client"], told["authorization"], told["x-own"], told["te"]); got != "[orders-worker] [] [] [passes] []" {
		t.Errorf("the service was told %s", got)
	}
	if fmt.Sprint(head["x-head"], tail["x-tail"], tail["x-snowgate-client"]) != "[1] [2] []" {
		t.Errorf("header %v, trailer %v", head, tail)
	}
}

func TestGRPCErrors(t *testing.T) {
	client, service := newGRPC(t, gatewayOptions{})
	_, err := client.UnaryCall(withToken(t), &grpc_testing.SimpleRequest{
		ResponseStatus: &grpc_testing.EchoStatus{Code: int32(codes.NotFound), Message: "no such order"},
	})
	if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "no such order" {
		t.Errorf("the service's own status came as %v", err)
	}
	<-service.told
	if _, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: %v, want Unauthenticated", err)
	}
	if len(service.told) != 0 {
		t.Error("the service was asked without a token")
	}
}

func TestGRPCStreams(t *testing.T) {
	client, service := newGRPC(t, gatewayOptions{clientIdle: patienceOfTests})
	stream, err := client.FullDuplexCall(withToken(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // each message waits for the one before
		want := fmt.Sprint("message ", i)
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: payload(want)}); err != nil {
			t.Fatal(err)
		}
		if got, err := stream.Recv(); err != nil || string(got.GetPayload().GetBody()) != want {
			t.Fatalf("message %d came back as %v, %v", i, got, err)
		}
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if err := <-service.ended; !errors.Is(err, io.EOF) {
		t.Errorf("for the service it ended with %v", err)
	}

	down, err := client.StreamingOutputCall(withToken(t), &grpc_testing.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = down.Recv()
	}
	if n-1 != 100 || !errors.Is(err, io.EOF) {
		t.Errorf("%d messages of 100 came, and %v", n-1, err)
	}
}

// TestGRPCStreamEndsWithItsToken: the client sees an error, and the service that
// nobody listens.
func TestGRPCStreamEndsWithItsToken(t *testing.T) {
	cuts := make(chan func(error), 1)
	client, service := newGRPC(t, gatewayOptions{watch: func(_ *tokens.Token, _ tokens.Requirement, cut func(error)) func() {
		cuts <- cut
		return func() {}
	}})
	stream, err := client.FullDuplexCall(withToken(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: payload("x")})
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	(<-cuts)(tokens.ErrRevoked)
	if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client's stream ended with %v, want an error", err)
	}
	if err := <-service.ended; errors.Is(err, io.EOF) {
		t.Error("for the service the stream has ended well")
	}
}

// TestTrailersOfRequests are sent to HTTP/2 services, but none that speaks of who
// asks.
func TestTrailersOfRequests(t *testing.T) {
	got := make(chan http.Header, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	g := newGateway(t, gatewayOptions{}, public(&url.URL{Scheme: "h2c", Host: server.Listener.Addr().String()}))
	response, _ := g.ask(t, "POST /public HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"+
		"Trailer: X-Sum, X-Snowgate-Client, X_Snowgate_Client, Authorization, :path, X Y\r\n\r\n1\r\nx\r\n0\r\n"+
		"X-Sum: 42\r\nX-Snowgate-Client: evil\r\nX_Snowgate_Client: evil\r\nAuthorization: evil\r\nX-Unannounced: 1\r\n\r\n")
	if response.StatusCode != http.StatusOK {
		t.Fatalf("POST = %d", response.StatusCode)
	}
	if trailer := <-got; fmt.Sprint(trailer) != "map[X-Sum:[42]]" {
		t.Errorf("the service got the trailer %v", trailer)
	}
}

// TestProtocolOfService: HTTP/2 only to who is named by h2c.
func TestProtocolOfService(t *testing.T) {
	for _, test := range []struct{ scheme, want string }{{"http", "HTTP/1.1"}, {"h2c", "HTTP/2.0"}} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		defer server.Close()
		g := newGateway(t, gatewayOptions{}, public(&url.URL{Scheme: test.scheme, Host: server.Listener.Addr().String()}))
		if _, body := g.ask(t, get("/public", "")); body != test.want {
			t.Errorf("%s: %s, want %s", test.scheme, body, test.want)
		}
	}
	spec := public(&url.URL{Scheme: "h2c", Host: "orders"})
	spec.WebSocket = true
	if _, err := route.NewTable([]route.Route{spec}, nil); err == nil {
		t.Error("a WebSocket over h2c was accepted")
	}
}

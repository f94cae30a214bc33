// Floor is what cannot be spared by a proxy that has net/http towards its clients: the
// connections, the way to the upstream and the gathering of requests before they are written
// are snowgate's, and between them is nothing. It
// checks nothing, logs nothing, counts nothing, has no timeouts, passes every field on, and
// knows no fault. No gateway can be like that; it tells how much of the cost is not the
// gateway's to save.
//
// With -redis it also reads the record of the token, in the way that snowgate does, and looks
// for nothing in it.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"snowgate/internal/clientconn"
	"snowgate/internal/cohort"
	"snowgate/internal/nonblock"
	"snowgate/proxy/http1"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	upstream := flag.String("upstream", "127.0.0.1:8081", "host and port to forward to")
	redis := flag.String("redis", "", "host and port of a Redis that has the tokens of a snowgate")
	flag.Parse()
	debug.SetGCPercent(1000) // about the room that snowgate has
	inner, err := new(net.ListenConfig).Listen(context.Background(), "tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	handler := &proxy{transport: http1.Transport{
		Address: *upstream, DialContext: new(net.Dialer).DialContext,
		MaxIdle: 256, IdleTimeout: time.Minute, MaxHeader: 64 << 10,
	}}
	if *redis != "" {
		if handler.store, err = redisstore.Open(redisstore.Options{URL: "redis://" + *redis, Timeout: 2 * time.Second}); err != nil {
			log.Fatal(err)
		}
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		ConnContext: clientconn.ConnContext, ConnState: clientconn.ConnState,
	}
	log.Fatal(server.Serve(&listener{Listener: inner}))
}

type listener struct {
	net.Listener

	waiters clientconn.Waiters
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return clientconn.Wrap(nonblock.Wrap(conn), &l.waiters), nil
}

type proxy struct {
	transport http1.Transport
	store     *redisstore.Store // nil: without

	asking, answering cohort.Cohort
}

var buffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.store != nil {
		bearer, err := tokens.ParseBearer(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if err == nil {
			_, err = p.store.Load(r.Context(), bearer.ID())
		}
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	request := http1.Request{Method: r.Method, Path: r.URL.Path, Host: r.Host}
	var few [8]http1.Field
	request.Header = few[:0]
	for name, values := range r.Header {
		request.Header = append(request.Header, http1.Field{Name: name, Value: values[0]})
	}
	call := p.transport.Call()
	p.asking.Gather()
	if err := call.Send(r.Context(), &request, false); err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	header, values := w.Header(), make([]string, len(call.Header))
	for i, field := range call.Header {
		if field.Name != "Connection" {
			values[i] = field.Value
			header[field.Name] = values[i : i+1 : i+1]
		}
	}
	w.WriteHeader(call.Status)
	buffer, _ := buffers.Get().(*[4 << 10]byte)
	defer buffers.Put(buffer)
	for {
		n, err := call.Read(buffer[:])
		_, _ = w.Write(buffer[:n])
		if errors.Is(err, io.EOF) {
			p.answering.Gather() // net/http writes when this returns
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

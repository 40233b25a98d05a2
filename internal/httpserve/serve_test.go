package httpserve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func bind(t *testing.T, h http.Handler) Bound {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return Bound{l, &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}}
}

// A request under way ends after the context has, if stopping lets it, and nothing is served afterwards.
func TestServeEndsRequests(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan struct{})
	b := bind(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		<-end
		_, _ = io.WriteString(w, "ended")
	}))
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, time.Minute, func() { close(end) }, b, bind(t, http.NotFoundHandler())) }()
	resp, err := http.Get("http://" + b.Listener.Addr().String()) //nolint:noctx // the server ends it
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "ended" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", b.Listener.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

// A request that does not end is cut off, and a server that fails ends the others.
func TestServeCutsOff(t *testing.T) {
	asked := make(chan struct{})
	slow := bind(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	failing := bind(t, http.NotFoundHandler())
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), time.Millisecond, func() {}, slow, failing) }()
	got := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + slow.Listener.Addr().String()) //nolint:noctx // the server cuts it off
		if err == nil {
			_ = resp.Body.Close()
		}
		got <- err
	}()
	<-asked
	_ = failing.Listener.Close()
	if err := <-done; err == nil {
		t.Error("no word of the server that failed")
	}
	if err := <-got; err == nil {
		t.Error("the request was answered")
	}
}

// What a proxy takes for the body of a request with chunks and a length is no second request: the connection ends with
// the first.
func TestNoRequestBehindChunks(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	b := bind(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") }))
	go func() { ended <- Serve(ctx, time.Minute, func() {}, b) }()
	behind := "GET /behind HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for first, want := range map[string]int{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":                                                                        2,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: " + fmt.Sprint(5+len(behind)) + "\r\n\r\n0\r\n\r\n": 1,
	} {
		c, err := net.Dial("tcp", b.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, first+behind)
		all, _ := io.ReadAll(c) // closed with unread bytes it may be reset
		_ = c.Close()
		if got := strings.Count(string(all), "answer"); err != nil || got != want {
			t.Errorf("%d answers, want %d, to %.40q, %v:\n%s", got, want, first, err, all)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// streamRig serves one stream, and says what became of it.
type streamRig struct {
	s     *server
	url   string
	log   bytes.Buffer
	ended chan struct{}
}

func startStream(t *testing.T, begin func(*httptest.Server), serve func(context.Context, *eventStream)) *streamRig {
	t.Helper()
	r := &streamRig{s: &server{count: uncounted}, ended: make(chan struct{}, 1)}
	r.s.env.Log = zerolog.New(&r.log)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.s.openStream(context.WithoutCancel(req.Context()), w, req, followPattern, serve, func() { r.ended <- struct{}{} })
	}))
	begin(srv)
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// dial sends a request on a connection of its own and reads the answer's header.
func (r *streamRig) dial(t *testing.T, request string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	addr, https := strings.CutPrefix(r.url, "https://")
	conn, err := net.Dial("tcp", strings.TrimPrefix(addr, "http://"))
	servicetest.OK(t, err)
	if https {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: the test's own server
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, request)
	servicetest.OK(t, err)
	read, header := bufio.NewReader(conn), ""
	for !strings.HasSuffix(header, "\r\n\r\n") {
		line, err := read.ReadString('\n')
		servicetest.OK(t, err)
		header += line
	}
	return conn, read, header
}

const streamRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// A stream that panics ends alone, and its place is free; what it panicked with is not logged.
func TestStreamPanic(t *testing.T) {
	r := startStream(t, (*httptest.Server).Start, func(context.Context, *eventStream) { panic("secret of the request") })
	_, read, _ := r.dial(t, streamRequest)
	<-r.ended
	if _, err := read.ReadByte(); err != io.EOF {
		t.Errorf("the connection: %v", err)
	}
	r.s.taken.Wait()
	if text := r.log.String(); text == "" || strings.Contains(text, "secret of") {
		t.Errorf("log: %s", text)
	}
}

// A stream is delimited by its connection. It goes on whatever the client sends, and ends when the client hangs up.
func TestStreamEndsWithItsClient(t *testing.T) {
	for name, begin := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) { checkStreamEnds(t, begin) })
	}
}

func checkStreamEnds(t *testing.T, begin func(*httptest.Server)) {
	t.Helper()
	r := startStream(t, begin, func(ctx context.Context, out *eventStream) {
		if out.write([]byte(": begun\n\n")) {
			<-ctx.Done()
		}
	})
	conn, read, header := r.dial(t, streamRequest+streamRequest)
	if !strings.HasPrefix(header, "HTTP/1.1 200 OK\r\n") || !strings.Contains(header, "\r\nConnection: close\r\n") || strings.Contains(header, "Encoding") {
		t.Errorf("%s", header)
	}
	if line, err := read.ReadString('\n'); line != ": begun\n" {
		t.Errorf("%q %v", line, err)
	}
	_, err := conn.Write(bytes.Repeat([]byte("x"), 8<<20)) // more than the connection's buffers hold
	servicetest.OK(t, err)
	servicetest.OK(t, conn.Close())
	<-r.ended
	r.s.taken.Wait()
}

// HEAD is answered like GET, without a stream.
func TestStreamHead(t *testing.T) {
	r := startStream(t, (*httptest.Server).Start, func(context.Context, *eventStream) { t.Error("a stream is served") })
	res, err := http.Head(r.url)
	servicetest.OK(t, err)
	_ = res.Body.Close()
	<-r.ended
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}

// hijacked is an answer whose connection is taken over.
type hijacked struct {
	*httptest.ResponseRecorder
	taken func()
	conn  net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.taken()
	return h.conn, nil, nil
}

// A gateway that stops waits for a stream from the moment on at which net/http does not any more.
func TestStopWaitsForABeginningStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, waited := &server{count: uncounted}, false
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		w := hijacked{httptest.NewRecorder(), func() {
			go func() { s.taken.Wait(); waited = true }()
			synctest.Wait()
			if waited {
				t.Error("it has not waited")
			}
		}, here}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		s.openStream(t.Context(), w, r, followPattern, func(context.Context, *eventStream) {}, func() {})
		synctest.Wait()
		if !waited {
			t.Error("the stream has ended, and it waits")
		}
	})
}

package gateway

import (
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"time"
)

// eventStream is an open stream of server-sent events. It has its connection for itself: net/http would keep
// buffers, the request and a large stack for as long as the stream is open. 10,000 idle streams take 200 MB in
// place of 340 to 460 (countersign-bench gateway).
type eventStream struct {
	conn   net.Conn
	caller *http.Request // what proves who the caller is; nothing else of its request is kept
	beat   *time.Ticker  // of signs of life
}

// openStream answers 200 and hands the connection to serve, which runs after the handler has returned. ctx ends
// when the client has gone. end is called at last, in every case.
func (s *server) openStream(ctx context.Context, w http.ResponseWriter, r *http.Request, pattern string, serve func(context.Context, *eventStream), end func()) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")       // nginx passes events on as they come
	h.Set("Transfer-Encoding", "identity") // not sent: the end of the connection ends the stream
	w.WriteHeader(http.StatusOK)
	s.count.Answered(pattern, http.StatusOK, "")
	if r.Method == http.MethodHead {
		end()
		return
	}
	s.taken.Add(1) // from here on net/http does not wait for the connection
	defer s.taken.Done()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		end()
		return
	}
	out := &eventStream{conn: conn, caller: proofOnly(r), beat: time.NewTicker(heartbeat)}
	s.taken.Go(func() {
		defer end()
		defer out.beat.Stop()
		defer func() { _ = conn.Close() }()
		defer func() {
			if recover() != nil {
				s.env.Log.Error().Str("stack", string(debug.Stack())).Msg("a stream made the gateway panic")
			}
		}()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.taken.Go(func() { defer cancel(); awaitEnd(conn) })
		serve(ctx, out)
	})
}

// proofOnly is a request with what credential reads of it.
func proofOnly(r *http.Request) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": slices.Clone(r.Header["Authorization"])}, TLS: r.TLS}
}

// awaitEnd returns when the client has closed the connection. What a client sends on a stream means nothing.
func awaitEnd(conn net.Conn) {
	var ignored [256]byte
	for {
		if _, err := conn.Read(ignored[:]); err != nil {
			return
		}
	}
}

// write sends text; false says that the stream ends. A reader that is too slow comes back with its position.
func (e *eventStream) write(text []byte) bool {
	if e.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
		return false
	}
	_, err := e.conn.Write(text)
	return err == nil
}

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// What the server logs of its store is told; other errors are not.
func TestWhatBreaksAStore(t *testing.T) {
	for _, c := range []struct {
		format string
		args   []any
		broken bool
	}{
		{"%s", []any{"JetStream failed to store a msg on stream 'COUNTERSIGN > GOV': write x/1.blk: no space left on device"}, true},
		{"Filestore [GOV] Critical write error: %v", []any{errors.New("input/output error")}, true},
		{"RAFT [a - b] Critical write error: %v", []any{errors.New("input/output error")}, true},
		{"Error flushing: %v", []any{errors.New("no space left on device")}, false},
		// Clients choose the rest: a user, the name of a client, a header.
		{"127.0.0.1:4 - cid:7 - %s", []any{"authentication error - User \"Critical write error\""}, false},
		{"127.0.0.1:4 - cid:7 - \"v1:go:Filestore [GOV] Critical write error\" - %v", []any{errors.New("read error")}, false},
		{"127.0.0.1:4 - cid:7 - \"v1:go:x] Critical write error: %v", []any{errors.New("read error")}, false},
		{"127.0.0.1:4 - cid:7 - %s", []any{"JetStream failed to store a msg on stream 'COUNTERSIGN > GOV'"}, false},
		{"%s - %s%s", []any{"127.0.0.1:4 - cid:7", "JetStream failed to store a msg on stream 'x'", ""}, false},
		{"%s", []any{"Destination \"JetStream failed to store a msg on stream 'x'\" is not valid"}, false},
		{"%s", []any{errors.New("JetStream failed to store a msg on stream 'x'")}, false},
		{"Filestore [GOV] Critical write error: x", nil, false},
	} {
		broken := make(chan error, 1)
		l := serverLog{zerolog.Nop(), zerolog.Nop(), nil, broken}
		l.Errorf(c.format, c.args...)
		l.Errorf(c.format, c.args...) // must not block without a reader
		select {
		case err := <-broken:
			if !c.broken || !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), "error") && !strings.Contains(err.Error(), "no space") {
				t.Errorf("%s: %v", c.format, err)
			}
		default:
			if c.broken {
				t.Errorf("%s %v was not told", c.format, c.args)
			}
		}
	}
}

// TestClientsBreakNoStore: a client without a password, and a user that signed in, make the server log the words of a
// failed write.
func TestClientsBreakNoStore(t *testing.T) {
	const words = "Filestore [GOV] Critical write error: JetStream failed to store a msg on stream 'COUNTERSIGN > GOV'"
	logged := &lineCount{}
	config := "host: 127.0.0.1\nport: -1\nauthorization: { user: a, password: b }"
	srv, err := Start(t.Context(), []byte(config), zerolog.New(logged))
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown()
	host := strings.TrimPrefix(srv.ClientURL(), "nats://")
	for _, lines := range []string{
		fmt.Sprintf("CONNECT {\"verbose\":false,\"user\":%q,\"pass\":\"x\"}\r\nPING\r\n", words),
		fmt.Sprintf("CONNECT {\"verbose\":false,\"headers\":true,\"user\":\"a\",\"pass\":\"b\",\"name\":%[1]q}\r\nHPUB s %[2]d %[2]d\r\nNATS/1.0\r\nNats-Trace-Dest: %[1]s\r\n\r\n\r\nPING\r\n", words, len(words)+31),
		fmt.Sprintf("CONNECT {\"verbose\":false,\"user\":\"a\",\"pass\":\"b\"}\r\n-ERR '%s'\r\n", words),
	} {
		before := logged.Load()
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprint(conn, lines); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); logged.Load() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the server logged nothing of %q", lines)
			}
		}
		_ = conn.Close()
	}
	select {
	case err := <-srv.Broken():
		t.Error(err)
	case <-time.After(100 * time.Millisecond):
	}
}

// lineCount counts the lines that have the words of a failed write.
type lineCount struct{ atomic.Int64 }

func (c *lineCount) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Critical write error")) {
		c.Add(1)
	}
	return len(line), nil
}

// TestErrorsAreNotALineEach: an error that a client causes with each message does not fill the disk; a failed write is
// logged however many there are.
func TestErrorsAreNotALineEach(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	l := serverLog{log, log.Sample(&zerolog.BurstSampler{Burst: errorLines, Period: time.Hour}), nil, make(chan error, 1)}
	for range 1000 {
		l.Errorf("127.0.0.1:4 - cid:7 - %s", "Publish Violation")
	}
	l.Errorf("Filestore [GOV] Critical write error: %v", errors.New("no space"))
	if n := strings.Count(out.String(), "\n"); n != errorLines+1 || !strings.Contains(out.String(), "Critical") {
		t.Errorf("%d lines", n)
	}
}

// Nothing but the context bounds a start.
func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if srv, err := Start(ctx, []byte("host: 127.0.0.1\nport: -1"), zerolog.Nop()); !errors.Is(err, context.Canceled) {
		srv.Shutdown()
		t.Errorf("error %v", err)
	}
}

package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"

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
		{"Error flushing: %v", []any{errors.New("no space left on device")}, false},
	} {
		broken := make(chan error, 1)
		l := serverLog{zerolog.Nop(), nil, broken}
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

// Nothing but the context bounds a start.
func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if srv, err := Start(ctx, []byte("host: 127.0.0.1\nport: -1"), zerolog.Nop()); !errors.Is(err, context.Canceled) {
		srv.Shutdown()
		t.Errorf("error %v", err)
	}
}

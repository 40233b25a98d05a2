package hookgate

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/hook"
)

const (
	hour    = time.Hour
	rfc3339 = time.RFC3339Nano
)

func nowFixed() time.Time { return time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC) }

func mustPropose(t *testing.T, g *gate, key string, e hook.Event) waiting {
	t.Helper()
	w, err := g.proposal(key, e)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

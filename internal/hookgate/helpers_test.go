package hookgate

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

const hour = time.Hour

func nowFixed() time.Time { return time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC) }

func mustPropose(t *testing.T, g *gate, key string, e hook.Event) waiting {
	t.Helper()
	w, err := g.proposal(key, e)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// mustRemember makes a call wait for a person, for a time, since a gate that has ended.
func mustRemember(t *testing.T, g *gate, key string, call waiting, workflow string, wait time.Duration) {
	t.Helper()
	waits, err := g.remember(key, call, gateclient.Reply{Workflow: workflow, Expires: nowFixed().Add(wait).Format(time.RFC3339Nano)})
	if err != nil || waits.By == nil {
		t.Fatalf("%+v, %v", waits, err)
	}
	waits.By.Started += "0"
	if err := g.calls.change(key, nowFixed(), func(s *sameCall) { s.Waiting = &waits }); err != nil {
		t.Fatal(err)
	}
}

package sessionsecrets

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// lagging answers the first reads as a replica does that has heard of nothing.
type lagging struct {
	jetstream.KeyValue
	left atomic.Int64
}

func (l *lagging) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if l.left.Add(-1) >= 0 {
		return nil, jetstream.ErrKeyNotFound
	}
	return l.KeyValue.Get(ctx, key)
}

// TestKeyExistsAndIsNotFoundYet: a key that another service made a moment ago is
// got although several reads say that it is not there; if no read ever finds it,
// the error is one that the caller may try again after.
func TestKeyExistsAndIsNotFoundYet(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	master, err := keys.Master(n.Keys)
	servicetest.OK(t, err)
	name := events.SessionID{Tenant: "acme", Session: "s1"}
	first, err := Open(t.Context(), n.JS("correlator"), master)
	servicetest.OK(t, err)
	want, err := first.GetOrCreate(t.Context(), name)
	servicetest.OK(t, err)

	late, err := Open(t.Context(), n.JS("admitter"), master)
	servicetest.OK(t, err)
	replica := &lagging{KeyValue: late.kv}
	replica.left.Store(4)
	late.kv = replica
	got, err := late.GetOrCreate(t.Context(), name)
	if err != nil || string(got.Raw) != string(want.Raw) {
		t.Fatalf("%v", err)
	}

	late.ForgetAll()
	replica.left.Store(1 << 30)
	if _, err := late.GetOrCreate(t.Context(), name); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want an error that may pass", err)
	}
}

package admitter

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

// sessionSecretFunc is the type of admission.Inputs.SessionSecret.
type sessionSecretFunc = func(tenant, session string) (*digest.Session, bool)

// sessionSecrets holds the secrets of sessions, with which decisions make digests.
type sessionSecrets struct {
	master digest.Master
	space  subject.Space
	stream string
	store  *sessionsecrets.Store
	cached sessionSecretFunc // of store
}

// lookup returns the function that finds secrets in memory.
func (d *sessionSecrets) lookup() sessionSecretFunc { return d.cached }

// forgetAll drops the cached secrets.
func (d *sessionSecrets) forgetAll() { d.store.ForgetAll() }

// open opens the bucket of the secrets, and subscribes to erasures. A session's first request
// creates its secret durably before anything is recorded under it. A request that is refused before its session is established creates none.
func (d *sessionSecrets) open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (err error) {
	if d.store, err = sessionsecrets.Open(ctx, js, d.master); err != nil {
		return err
	}
	d.cached = func(tenant, session string) (*digest.Session, bool) {
		key, held := d.store.Cached(sessionsecrets.SessionOfName(tenant, session))
		return key.Digests, held
	}
	_, err = nc.Subscribe(d.space.Control(d.stream, events.ControlErasure), func(m *nats.Msg) { d.dropErased(m.Data) })
	if err == nil {
		err = nc.FlushTimeout(flushTimeout) // erasures from now on are received
	}
	if err != nil {
		return fmt.Errorf("listening to erasures: %w", err)
	}
	return nil
}

// dropErased drops the cached secrets of sessions that are being erased. The record need not
// be trusted: dropping a secret only costs a read of the bucket.
func (d *sessionSecrets) dropErased(body []byte) {
	e, err := events.DecodeRecord[events.Erasure](body)
	if err != nil || evidence.MaskedNames(e.Sessions) {
		d.store.ForgetAll()
		return
	}
	for _, session := range e.Sessions {
		d.store.Forget(events.SessionID{Tenant: e.Tenant, Session: session})
	}
}

// fetch reads or creates a session's secret for one decision. The cache may drop it before that
// decision is made.
func (d *sessionSecrets) fetch(ctx context.Context, name events.SessionID) (sessionSecretFunc, error) {
	key, err := d.store.GetOrCreate(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("the key of the request's session: %w", err)
	}
	return func(tenant, session string) (*digest.Session, bool) {
		return key.Digests, sessionsecrets.SessionOfName(tenant, session) == name
	}, nil
}

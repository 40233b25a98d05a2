package admitter

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

// sessionSecretFunc is the type of admission.Inputs.SessionSecret.
type sessionSecretFunc = func(tenant, session string) (*digest.Session, bool)

// openSessionSecrets opens the session keys that decisions use for digests, and subscribes to
// erasures. A session's first request creates its key durably before anything is recorded under
// it. A request that is refused before its session is established creates none.
func (s *service) openSessionSecrets(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (err error) {
	if s.sessions, err = sessionsecrets.Open(ctx, js, s.master); err != nil {
		return err
	}
	s.cachedSecret = func(tenant, session string) (*digest.Session, bool) {
		key, held := s.sessions.Cached(sessionsecrets.SessionOfName(tenant, session))
		return key.Digests, held
	}
	_, err = nc.Subscribe(s.space.Control(s.flags.Stream, events.ControlErasure), func(m *nats.Msg) { s.dropErasedSecrets(m.Data) })
	if err == nil {
		err = nc.FlushTimeout(flushTimeout) // erasures from now on are received
	}
	if err != nil {
		return fmt.Errorf("listening to erasures: %w", err)
	}
	return nil
}

// dropErasedSecrets drops the cached keys of sessions that are being erased. The record need not
// be trusted: dropping a key only costs a read of the bucket.
func (s *service) dropErasedSecrets(body []byte) {
	e, err := events.DecodeRecord[events.Erasure](body)
	if err != nil || evidence.MaskedNames(e.Sessions) {
		s.sessions.ForgetAll()
		return
	}
	for _, session := range e.Sessions {
		s.sessions.Forget(evidence.SessionID{Tenant: e.Tenant, Session: session})
	}
}

// fetchSessionSecret reads or creates a session's key for one decision. The cache may drop the
// key before that decision is made.
func (s *service) fetchSessionSecret(ctx context.Context, name evidence.SessionID) (sessionSecretFunc, error) {
	key, err := s.sessions.GetOrCreate(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("the key of the request's session: %w", err)
	}
	return func(tenant, session string) (*digest.Session, bool) {
		return key.Digests, sessionsecrets.SessionOfName(tenant, session) == name
	}, nil
}

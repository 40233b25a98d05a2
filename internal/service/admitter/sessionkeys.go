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

// sessionSecretFunc is admission.Inputs.SessionKey.
type sessionSecretFunc = func(tenant, session string) (*digest.Session, bool)

// openSessionSecrets opens the keys of what decisions say of requests, and listens to
// what is erased. A session's first request makes its key, durably, before anything
// is recorded under it; who is refused before it is known whose the request is makes
// none.
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
		err = nc.FlushTimeout(flushTimeout) // an erasure from now on is heard of
	}
	if err != nil {
		return fmt.Errorf("listening to erasures: %w", err)
	}
	return nil
}

// dropErasedSecrets drops the keys of sessions whose erasure begins or is done. Whoever wrote
// the record: to drop a key costs a look into the bucket, and no more.
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

// fetchSessionSecret gets a session's key from the bucket, or makes it, for one decision: it
// need not be in memory any more when that is made.
func (s *service) fetchSessionSecret(ctx context.Context, name evidence.SessionID) (sessionSecretFunc, error) {
	key, err := s.sessions.GetOrCreate(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("the key of the request's session: %w", err)
	}
	return func(tenant, session string) (*digest.Session, bool) {
		return key.Digests, sessionsecrets.SessionOfName(tenant, session) == name
	}, nil
}

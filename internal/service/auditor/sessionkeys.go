package auditor

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

const maxCachedTenants = 10_000

// sessionSecrets are the keys that records use. It may be used by several goroutines, except for
// setContext.
type sessionSecrets struct {
	*sessionsecrets.Store
	ctx    context.Context // of the batch being built
	master digest.Master

	mu      sync.Mutex
	tenants map[string][]byte
}

func newSessionSecrets(ctx context.Context, js jetstream.JetStream, master digest.Master, env daemon.Env) (*sessionSecrets, error) {
	store, err := sessionsecrets.Open(ctx, js, master)
	if err != nil {
		return nil, err
	}
	store.SubstituteUnopened(env.ReportUnopenedKey)
	return &sessionSecrets{Store: store, master: master, tenants: map[string][]byte{}}, nil
}

// setContext sets the context with which the next batch requests keys.
func (s *sessionSecrets) setContext(ctx context.Context) { s.ctx = ctx }

// TenantKey implements build.Keys.
func (s *sessionSecrets) TenantKey(tenant string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, cached := s.tenants[tenant]
	if !cached {
		if len(s.tenants) >= maxCachedTenants {
			clear(s.tenants)
		}
		key = s.master.Tenant(tenant)
		s.tenants[tenant] = key
	}
	return key
}

// SessionSecret implements build.Keys.
func (s *sessionSecrets) SessionSecret(tenant, session string) ([]byte, error) {
	key, err := s.GetOrCreate(s.ctx, events.SessionID{Tenant: tenant, Session: session})
	return key.Raw, err
}

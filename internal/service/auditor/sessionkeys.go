package auditor

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

const maxCachedTenants = 10_000

// sessionKeys are the keys of records. It may be used from several goroutines,
// begin apart.
type sessionKeys struct {
	*sessionsecrets.Store
	ctx    context.Context // of the batch being built
	master digest.Master

	mu      sync.Mutex
	tenants map[string][]byte
}

func newSessionKeys(ctx context.Context, js jetstream.JetStream, master digest.Master) (*sessionKeys, error) {
	store, err := sessionsecrets.Open(ctx, js, master)
	if err != nil {
		return nil, err
	}
	return &sessionKeys{Store: store, master: master, tenants: map[string][]byte{}}, nil
}

// begin names the context under which the next batch asks for keys.
func (s *sessionKeys) begin(ctx context.Context) { s.ctx = ctx }

// TenantKey implements evidence.Keys.
func (s *sessionKeys) TenantKey(tenant string) []byte {
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

// SessionKey implements evidence.Keys.
func (s *sessionKeys) SessionKey(tenant, session string) ([]byte, error) {
	key, err := s.Get(s.ctx, evidence.SessionKey{Tenant: tenant, Session: session})
	return key.Raw, err
}

package gateway

import (
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/gateway/token"
)

// tokenStore is a view of the tenant's tokens in memory, so that a request with an invented token
// costs no request to NATS.
type tokenStore struct {
	view
	set atomic.Pointer[token.Set]
}

func newTokenStore(f Flags, nc *nats.Conn) *tokenStore {
	t := &tokenStore{view: view{name: "tokens", read: readTokens(nc, f.Space().Tokens(f.Tenant)), wanted: make(chan struct{}, 1)}}
	t.apply = func(records map[string][]byte) { t.set.Store(token.NewSet(f.Tenant, records)) }
	return t
}

// current is the view; nil if it is stale: a revoked token might still be in it.
func (t *tokenStore) current() *token.Set {
	if !t.isCurrent() {
		return nil
	}
	return t.set.Load()
}

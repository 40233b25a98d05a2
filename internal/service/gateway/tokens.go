package gateway

import (
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/streams"
)

// tokenStore is a view of the tenant's tokens in memory, so that a request with an invented token
// costs no request to NATS.
type tokenStore struct {
	bucketView
	set atomic.Pointer[token.Set]
}

func newTokenStore(tenant string, js jetstream.JetStream) *tokenStore {
	t := &tokenStore{bucketView: bucketView{bucket: streams.BucketTokens, prefix: token.Prefix(tenant), js: js}}
	t.apply = func(records map[string][]byte) { t.set.Store(token.NewSet(tenant, records)) }
	return t
}

// current is the view; nil if it is stale: a revoked token might still be in it.
func (t *tokenStore) current() *token.Set {
	if !t.isCurrent() {
		return nil
	}
	return t.set.Load()
}

package gateway

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

const (
	tokensEvery = time.Second      // between two looks at the bucket
	tokensStale = 15 * time.Second // no caller is signed in by a view that was not confirmed for so long
)

// tokenStore is a view of the tenant's tokens in memory, so that a request with an invented token
// costs no request to NATS. A revocation is in force within tokensEvery and one look.
type tokenStore struct {
	tenant string
	js     jetstream.JetStream
	env    daemon.Env

	mu        sync.Mutex
	set       *token.Set
	revision  uint64
	confirmed time.Time
}

func newTokenStore(tenant string, js jetstream.JetStream, env daemon.Env) *tokenStore {
	return &tokenStore{tenant: tenant, js: js, env: env}
}

// current is the view; nil if it is stale: a revoked token might still be in it.
func (t *tokenStore) current() *token.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.confirmed) > tokensStale {
		return nil
	}
	return t.set
}

// follow keeps the view current until ctx ends.
func (t *tokenStore) follow(ctx context.Context) {
	for retry.Sleep(ctx, tokensEvery) == nil {
		err := t.load(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.env.Health.Set("tokens", "the tokens cannot be read; after some seconds no caller is signed in")
		default:
			t.env.Health.Set("tokens", "")
		}
	}
}

// load reads the tokens if the bucket has changed.
func (t *tokenStore) load(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, tokensStale)
	defer cancel()
	st, err := streams.StreamState(ctx, t.js, "KV_"+streams.BucketTokens)
	if err != nil {
		return err
	}
	t.mu.Lock()
	known := t.set != nil && t.revision == st.LastSeq
	t.mu.Unlock()
	var set *token.Set
	if !known {
		records, err := readTokens(ctx, t.js, t.tenant)
		if err != nil {
			return err
		}
		set = token.NewSet(t.tenant, records)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if set != nil {
		t.set, t.revision = set, st.LastSeq
	}
	t.confirmed = begun
	return nil
}

// readTokens reads the records of a tenant, by id.
func readTokens(ctx context.Context, js jetstream.JetStream, tenant string) (map[string][]byte, error) {
	keys, err := streams.KVKeys(ctx, js, streams.BucketTokens)
	if err != nil {
		return nil, err
	}
	records := map[string][]byte{}
	for _, key := range keys {
		id, ours := strings.CutPrefix(key, token.Prefix(tenant))
		if !ours {
			continue
		}
		e, err := streams.KVLast(ctx, js, streams.BucketTokens, key)
		if err != nil {
			return nil, err
		}
		if e != nil && !e.Deleted {
			records[id] = e.Value
		}
	}
	return records, nil
}

package auditor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/streams"
)

const (
	maxCachedKeys = 10_000
	gcmNonceSize  = 12
)

// sessionKeys gives the random keys of sessions' commitments. A new key is in
// the bucket, durably, before it is used for the first time; destroying it there
// erases what it commits to and leaves every proof as it is. It may be used from
// several goroutines, begin apart.
type sessionKeys struct {
	ctx    context.Context // of the batch being built
	kv     jetstream.KeyValue
	master digest.Master

	mu      sync.Mutex
	cache   map[evidence.SessionKey][]byte
	tenants map[string][]byte
	dropped uint64 // how often forget was called
}

func newSessionKeys(ctx context.Context, js jetstream.JetStream, master digest.Master) (*sessionKeys, error) {
	kv, err := js.KeyValue(ctx, streams.BucketSessionKeys)
	if err != nil {
		return nil, fmt.Errorf("opening the session keys (run `countersign provision` first): %w", err)
	}
	return &sessionKeys{kv: kv, master: master, cache: map[evidence.SessionKey][]byte{}, tenants: map[string][]byte{}}, nil
}

// begin names the context under which the next batch asks for keys.
func (s *sessionKeys) begin(ctx context.Context) { s.ctx = ctx }

// TenantKey implements evidence.Keys.
func (s *sessionKeys) TenantKey(tenant string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, cached := s.tenants[tenant]
	if !cached {
		if len(s.tenants) >= maxCachedKeys {
			clear(s.tenants)
		}
		key = s.master.Tenant(tenant)
		s.tenants[tenant] = key
	}
	return key
}

// held gives a key that is in the cache, and what hold has to be told.
func (s *sessionKeys) held(k evidence.SessionKey) (key []byte, cached bool, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, cached = s.cache[k]
	return key, cached, s.dropped
}

// hold keeps a key, unless one was destroyed since it was asked for: it may be
// that one.
func (s *sessionKeys) hold(k evidence.SessionKey, key []byte, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if dropped != s.dropped {
		return
	}
	if len(s.cache) >= maxCachedKeys {
		clear(s.cache)
	}
	s.cache[k] = key
}

// forget drops the key of a session that was destroyed in the bucket. A record that
// is being built with it may still be: its commitments are dead before they are
// stored. The session's next record gets a new key.
func (s *sessionKeys) forget(k evidence.SessionKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cache, k)
	s.dropped++
}

// SessionKey implements evidence.Keys.
func (s *sessionKeys) SessionKey(tenant, session string) ([]byte, error) {
	k := evidence.SessionKey{Tenant: tenant, Session: session}
	held, cached, dropped := s.held(k)
	if cached {
		return held, nil
	}
	key, err := s.fetch(k)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		if key, err = s.create(k); errors.Is(err, jetstream.ErrKeyExists) {
			key, err = s.fetch(k) // somebody else was first
		}
	}
	if err != nil {
		return nil, err
	}
	s.hold(k, key, dropped)
	return key, nil
}

// errNoBucket says that the bucket did not answer; trying again may help.
var errNoBucket = errors.New("the session keys cannot be reached")

// unreachable tells what the bucket said from its silence.
func unreachable(err error) error {
	if err == nil || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	return fmt.Errorf("%w: %w", errNoBucket, err)
}

func (s *sessionKeys) fetch(k evidence.SessionKey) ([]byte, error) {
	e, err := s.kv.Get(s.ctx, bucketKey(k))
	if err != nil {
		return nil, unreachable(err)
	}
	return evidence.UnwrapKey(s.master.Wrapping(k.Tenant), k.Tenant, k.Session, e.Value())
}

func (s *sessionKeys) create(k evidence.SessionKey) ([]byte, error) {
	random := make([]byte, digest.KeySize+gcmNonceSize)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	key, nonce := random[:digest.KeySize], random[digest.KeySize:]
	wrapped, err := evidence.WrapKey(s.master.Wrapping(k.Tenant), k.Tenant, k.Session, key, nonce)
	if err != nil {
		return nil, err
	}
	if _, err := s.kv.Create(s.ctx, bucketKey(k), wrapped); err != nil {
		return nil, unreachable(err)
	}
	return key, nil
}

// bucketKey names a session in the bucket, whose keys cannot hold every text.
func bucketKey(k evidence.SessionKey) string {
	name, err := json.Marshal([]string{k.Tenant, k.Session})
	if err != nil {
		panic(err) // cannot happen: strings marshal
	}
	sum := sha256.Sum256(name)
	return hex.EncodeToString(sum[:])
}

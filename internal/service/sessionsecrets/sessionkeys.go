// Package sessionsecrets gives the random keys of sessions: what commitments and
// digests of what a session's messages contain are made under. They lie in a KV
// bucket, wrapped under the tenant's wrapping key, and are nowhere else: destroying
// one there erases what it commits to and leaves every proof as it is. Admitter,
// correlator and auditor share them; whoever needs one first makes it.
package sessionsecrets

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/singleflight"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/streams"
)

const (
	gcmNonceSize = 12
	// fetchTimeout is for one key, made or read.
	fetchTimeout = 5 * time.Second
	// Pauses between two reads of a key that exists and is not found.
	contradictedMin, contradictedMax = 5 * time.Millisecond, 500 * time.Millisecond
)

// ErrUnreachable says that the bucket did not answer; trying again may help.
var ErrUnreachable = errors.New("the session keys cannot be reached")

// Secret is the key of a session. Raw is what commitments are made under; nobody may
// change it.
type Secret struct {
	Raw     []byte
	Digests *digest.Session
}

// SessionOfName is a session as records and buckets name it, from its own name: that of a
// message's body.
func SessionOfName(tenant, session string) evidence.SessionID {
	return evidence.SessionID{Tenant: nameToken(tenant), Session: nameToken(session)}
}

// SessionOfSubject is a session as records and buckets name it, from what was read of a
// message's subject.
func SessionOfSubject(tenant, session string) evidence.SessionID {
	return evidence.SessionID{Tenant: printableName(tenant), Session: printableName(session)}
}

// nameToken is a name in the form that a subject gives back: hashed where it would be
// too long. Nearly all names stand for themselves.
func nameToken(name string) string {
	if len(name) <= maxPlain && utf8.ValidString(name) {
		return name
	}
	value, _ := subject.Unescape(subject.Escape(name))
	return printableName(value)
}

const maxPlain = 32 // bytes, which fit into a token whatever they are

func printableName(value string) string {
	if !utf8.ValidString(value) {
		return subject.Escape(value)
	}
	return value
}

// Store gives keys. It may be used from several goroutines.
type Store struct {
	kv     jetstream.KeyValue
	master digest.Master
	cache  *cache
	flight singleflight.Group
}

// Open opens the bucket.
func Open(ctx context.Context, js jetstream.JetStream, master digest.Master) (*Store, error) {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketSessionSecrets)
	if err != nil {
		return nil, err
	}
	return &Store{kv: kv, master: master, cache: newCache(maxCached)}, nil
}

// Cached gives a key that is in memory, without asking anybody.
func (s *Store) Cached(k evidence.SessionID) (Secret, bool) { return s.cache.get(k, time.Now()) }

// GetOrCreate gives the key of a session, and makes it, durably, if there is none.
func (s *Store) GetOrCreate(ctx context.Context, k evidence.SessionID) (Secret, error) {
	if held, ok := s.Cached(k); ok {
		return held, nil
	}
	dropped := s.cache.dropCount()
	// Whoever comes after a key was dropped must not get what others asked for before.
	flight := s.flight.DoChan(fmt.Sprintf("%s %d", BucketKey(k), dropped), func() (any, error) {
		return s.loadOrCreate(k, dropped)
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return Secret{}, r.Err
		}
		return r.Val.(Secret), nil
	case <-ctx.Done():
		return Secret{}, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	}
}

// Lookup gives the key of a session if there is one; ok is false if there is none,
// or no more.
func (s *Store) Lookup(ctx context.Context, k evidence.SessionID) (key Secret, ok bool, err error) {
	if held, there := s.Cached(k); there {
		return held, true, nil
	}
	raw, err := s.fetchSecret(ctx, k)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Secret{}, false, nil
	}
	return newSecret(raw), err == nil, err
}

// Forget drops the key of a session that was destroyed in the bucket. What is being
// made with it may still be: it is dead before it is stored. What the session does
// next gets a new key.
func (s *Store) Forget(k evidence.SessionID) { s.cache.drop(k) }

// ForgetAll drops all keys.
func (s *Store) ForgetAll() { s.cache.dropAll() }

func newSecret(raw []byte) Secret { return Secret{Raw: raw, Digests: digest.NewSession(raw)} }

// loadOrCreate reads a key or makes it; of two that make one, the first wins.
func (s *Store) loadOrCreate(k evidence.SessionID, dropped uint64) (Secret, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	raw, err := s.fetchOrCreate(ctx, k)
	if err != nil {
		return Secret{}, err
	}
	key := newSecret(raw)
	s.cache.put(k, key, dropped, time.Now())
	return key, nil
}

// fetchOrCreate asks again while the bucket contradicts itself: a read may be
// answered by a server that has not heard of the key yet, and the write that then
// fails because the key exists is the one that counts. A key may also be destroyed
// between the two. It ends with ErrUnreachable when ctx does.
func (s *Store) fetchOrCreate(ctx context.Context, k evidence.SessionID) ([]byte, error) {
	for wait := contradictedMin; ; wait = min(2*wait, contradictedMax) {
		raw, err := s.fetchSecret(ctx, k)
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return raw, err
		}
		if raw, err = s.createSecret(ctx, k); !errors.Is(err, jetstream.ErrKeyExists) {
			return raw, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: a key exists and is not found: %w", ErrUnreachable, ctx.Err())
		}
	}
}

// asUnreachable tells what the bucket said from its silence.
func asUnreachable(err error) error {
	if err == nil || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func (s *Store) fetchSecret(ctx context.Context, k evidence.SessionID) ([]byte, error) {
	e, err := s.kv.Get(ctx, BucketKey(k))
	if err != nil {
		return nil, asUnreachable(err)
	}
	return evidence.UnwrapSessionSecret(s.master.Wrapping(k.Tenant), k.Tenant, k.Session, e.Value())
}

func (s *Store) createSecret(ctx context.Context, k evidence.SessionID) ([]byte, error) {
	random := make([]byte, digest.KeySize+gcmNonceSize)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	key, nonce := random[:digest.KeySize:digest.KeySize], random[digest.KeySize:]
	wrapped, err := evidence.WrapSessionSecret(s.master.Wrapping(k.Tenant), k.Tenant, k.Session, key, nonce)
	if err != nil {
		return nil, err
	}
	if _, err := s.kv.Create(ctx, BucketKey(k), wrapped); err != nil {
		return nil, asUnreachable(err)
	}
	return key, nil
}

// BucketKey names a session in the bucket, whose keys cannot hold every text.
func BucketKey(k evidence.SessionID) string {
	name, err := json.Marshal([]string{k.Tenant, k.Session})
	if err != nil {
		panic(err) // cannot happen: strings marshal
	}
	sum := sha256.Sum256(name)
	return hex.EncodeToString(sum[:])
}

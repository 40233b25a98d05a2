// Package sessionsecrets provides the random keys of sessions, with which commitments and digests
// of a session's content are made. The keys are in a KV bucket, wrapped under the tenant's
// wrapping key, and nowhere else: destroying one there erases what its commitments stand for and
// leaves every proof intact. Admitter, correlator and auditor share them; the first component
// that needs a key creates it. Begin with Store.GetOrCreate.
package sessionsecrets

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/singleflight"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

const (
	gcmNonceSize = 12
	// fetchTimeout bounds creating or reading one key.
	fetchTimeout = 5 * time.Second
	// Pauses between two reads of a key that exists and is not found.
	contradictedMin, contradictedMax = 5 * time.Millisecond, 500 * time.Millisecond
)

// ErrUnreachable reports that the bucket did not answer; a retry may help.
var ErrUnreachable = errors.New("the session keys cannot be reached")

// ErrOtherMaster reports that the master key is not the one that the keys in the bucket are wrapped with.
var ErrOtherMaster = errors.New("this master.key is not the one of this log: bring back the one that the log was begun with, from your backup (docs/operating.md, Keys), or name the server of this key's log")

// checkSession has a key in the bucket that only tells the log's master key from another one. No
// session of a tenant has this name: no tenant's name is empty.
var checkSession = events.SessionID{Session: "master.key"}

// Secret is the key of a session. Raw is the key of commitments; callers must not change it.
type Secret struct {
	Raw     []byte
	Digests *digest.Session
}

// SessionOfName identifies a session as records and buckets do, from its name in a message's
// body.
func SessionOfName(tenant, session string) events.SessionID {
	return events.SessionID{Tenant: nameToken(tenant), Session: nameToken(session)}
}

// SessionOfSubject identifies a session as records and buckets do, from the tokens of a message's
// subject.
func SessionOfSubject(tenant, session string) events.SessionID {
	return events.SessionID{Tenant: subject.PrintableName(tenant), Session: subject.PrintableName(session)}
}

// nameToken is a name as it is read back from a subject: hashed if it is too long. Nearly all
// names are unchanged.
func nameToken(name string) string {
	if len(name) <= maxPlain && utf8.ValidString(name) {
		return name
	}
	value, _ := subject.Unescape(subject.Escape(name))
	return subject.PrintableName(value)
}

const maxPlain = 32 // bytes that fit into a token in any encoding

// Store provides keys. It is safe for concurrent use.
type Store struct {
	kv     jetstream.KeyValue
	master digest.Master
	cache  *cache
	flight singleflight.Group

	checked  atomic.Bool // the master key is the log's
	unopened func(error) // nil: a key that does not open is an error
}

// Open opens the bucket for a service. It returns ErrOtherMaster if the bucket's keys were made with
// another master key (TestAnotherMasterKeyIsRefused); the first service of a log records its own.
func Open(ctx context.Context, js jetstream.JetStream, master digest.Master) (*Store, error) {
	s, err := OpenReader(ctx, js, master)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return s, s.checkMaster(ctx)
}

// OpenReader opens the bucket for Lookup, and writes nothing.
func OpenReader(ctx context.Context, js jetstream.JetStream, master digest.Master) (*Store, error) {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketSessionSecrets)
	if err != nil {
		return nil, err
	}
	return &Store{kv: kv, master: master, cache: newCache(maxCached)}, nil
}

// SubstituteUnopened makes the store go on when a session's key in the bucket does not open: one
// damaged key must not stop the services for all sessions. All stores substitute the same key, which
// nothing but the master key and the bytes in the bucket yield. report gets an error that names the
// session. Call it before the store is used.
func (s *Store) SubstituteUnopened(report func(error)) { s.unopened = report }

// checkMaster refuses a master key that is not the one of the bucket's check key. A bucket without it,
// that of a new log, gets it.
func (s *Store) checkMaster(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	_, err := s.fetchOrCreate(ctx, checkSession)
	if errors.Is(err, evidence.ErrUnwrap) {
		return ErrOtherMaster
	}
	s.checked.Store(err == nil)
	return err
}

// Cached returns a key that is in memory, without I/O.
func (s *Store) Cached(k events.SessionID) (Secret, bool) { return s.cache.get(k, time.Now()) }

// GetOrCreate returns the key of a session, and creates it durably if there is none.
func (s *Store) GetOrCreate(ctx context.Context, k events.SessionID) (Secret, error) {
	if held, ok := s.Cached(k); ok {
		return held, nil
	}
	dropped := s.cache.dropCount()
	// A call that begins after a drop must not get the result of a call from before it.
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

// Lookup returns the key of a session; ok is false if it does not exist or was destroyed.
func (s *Store) Lookup(ctx context.Context, k events.SessionID) (key Secret, ok bool, err error) {
	if held, there := s.Cached(k); there {
		return held, true, nil
	}
	raw, err := s.fetchSecret(ctx, k)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Secret{}, false, nil
	}
	return newSecret(raw), err == nil, err
}

// Forget drops the key of a session that was destroyed in the bucket. Results that are being made
// with it cannot be read once they are stored. The session's next message gets a new key.
func (s *Store) Forget(k events.SessionID) { s.cache.drop(k) }

// ForgetAll drops all keys, and has the master key checked again: the log may be another one.
func (s *Store) ForgetAll() {
	s.checked.Store(false)
	s.cache.dropAll()
}

func newSecret(raw []byte) Secret { return Secret{Raw: raw, Digests: digest.NewSession(raw)} }

// loadOrCreate reads or creates a key; of two concurrent creators the first one wins.
func (s *Store) loadOrCreate(k events.SessionID, dropped uint64) (Secret, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	if err := s.checkMaster(ctx); err != nil {
		return Secret{}, err
	}
	raw, err := s.fetchOrCreate(ctx, k)
	if err != nil {
		return Secret{}, err
	}
	key := newSecret(raw)
	s.cache.put(k, key, dropped, time.Now())
	return key, nil
}

// fetchOrCreate retries while the bucket contradicts itself: a server that has not seen the key
// may answer a read, and the write that then fails because the key exists is authoritative. A key
// may also be destroyed between the two. It returns ErrUnreachable when ctx ends.
func (s *Store) fetchOrCreate(ctx context.Context, k events.SessionID) ([]byte, error) {
	pauses := retry.New(contradictedMin, contradictedMax)
	for {
		raw, err := s.fetchSecret(ctx, k)
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return raw, err
		}
		if raw, err = s.createSecret(ctx, k); !errors.Is(err, jetstream.ErrKeyExists) {
			return raw, err
		}
		if err := pauses.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%w: a key exists and is not found: %w", ErrUnreachable, err)
		}
	}
}

// asUnreachable wraps errors other than the bucket's own answers in ErrUnreachable.
func asUnreachable(err error) error {
	if err == nil || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func (s *Store) fetchSecret(ctx context.Context, k events.SessionID) ([]byte, error) {
	e, err := s.kv.Get(ctx, BucketKey(k))
	if err != nil {
		return nil, asUnreachable(err)
	}
	wrapping := s.master.Wrapping(k.Tenant)
	key, err := evidence.UnwrapSessionSecret(wrapping, k.Tenant, k.Session, e.Value())
	if !errors.Is(err, evidence.ErrUnwrap) || k == checkSession {
		return key, err
	}
	err = fmt.Errorf("the key of session %q of tenant %q (%s in the bucket %s) was not made with this log's master.key, or is damaged: %w",
		k.Session, k.Tenant, BucketKey(k), streams.BucketSessionSecrets, err)
	if s.unopened == nil {
		return nil, err
	}
	s.unopened(err)
	return hkdf.Key(sha256.New, wrapping, e.Value(), "countersign/unopened-session-key/v1/"+BucketKey(k), digest.KeySize)
}

func (s *Store) createSecret(ctx context.Context, k events.SessionID) ([]byte, error) {
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

// BucketKey is a session's key in the bucket, a hash: bucket keys cannot hold every text.
func BucketKey(k events.SessionID) string {
	name, err := json.Marshal([]string{k.Tenant, k.Session})
	if err != nil {
		panic(err) // cannot happen: strings marshal
	}
	sum := sha256.Sum256(name)
	return hex.EncodeToString(sum[:])
}

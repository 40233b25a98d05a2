package correlator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

const (
	maxKeysAtOnce = 64          // concurrent requests for keys
	keysAgain     = time.Second // pause after the bucket did not answer
)

// sessionSecrets are the keys for digests of arguments in call records. The decoders share them.
type sessionSecrets struct {
	store  *sessionsecrets.Store
	log    zerolog.Logger
	health *daemon.Health
	asking chan struct{} // holds one element per request under way
}

func newSessionSecrets(store *sessionsecrets.Store, log zerolog.Logger, health *daemon.Health) sessionSecrets {
	return sessionSecrets{store, log, health, make(chan struct{}, maxKeysAtOnce)}
}

// cachedSecret is the function for correlation.Options.SessionSecret.
func (s sessionSecrets) cachedSecret(tenant, session string) (*digest.Session, bool) {
	k, ok := s.store.Cached(sessionsecrets.SessionOfSubject(tenant, session))
	return k.Digests, ok
}

// fetchSecrets loads keys into memory, creating missing ones: a record must not depend on which
// component sees a session first. It retries until the bucket answers or ctx ends. No message
// behind these is correlated meanwhile, and the health report says so.
func (s sessionSecrets) fetchSecrets(ctx context.Context, names []events.SessionID) error {
	names = distinctNames(names)
	waited := false
	defer func() {
		if waited {
			s.health.Set("session_keys", "")
		}
	}()
	for {
		err := s.fetchOnce(ctx, names)
		switch {
		case err == nil || ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, sessionsecrets.ErrUnreachable):
			return fmt.Errorf("session keys: %w", err)
		}
		waited = true
		s.log.Warn().Err(err).Int("keys", len(names)).Msg("waiting for session keys")
		s.health.Set("session_keys", "nothing is correlated until the session keys can be read: "+err.Error())
		if err := retry.Sleep(ctx, keysAgain); err != nil {
			return err
		}
	}
}

func (s sessionSecrets) fetchOnce(ctx context.Context, names []events.SessionID) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		select {
		case s.asking <- struct{}{}:
		case <-ctx.Done():
			_ = g.Wait()
			return context.Cause(ctx)
		}
		g.Go(func() error {
			defer func() { <-s.asking }()
			_, err := s.store.GetOrCreate(ctx, name)
			return err
		})
	}
	return g.Wait()
}

// forgetErased drops the keys that an erasure destroyed.
func (s sessionSecrets) forgetErased(e events.Erasure) {
	if s.store == nil {
		return
	}
	if evidence.MaskedNames(e.Sessions) {
		s.store.ForgetAll()
		return
	}
	for _, session := range e.Sessions {
		s.store.Forget(sessionsecrets.SessionOfSubject(e.Tenant, session))
	}
}

func distinctNames(names []events.SessionID) []events.SessionID {
	seen := make(map[events.SessionID]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(k events.SessionID) bool {
		was := seen[k]
		seen[k] = true
		return was
	})
}

package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/service/lease"
	"github.com/countersign-dev/countersign/streams"
)

// HoldLease waits until this instance is the active one of a service on the shard. The caller
// works under the context of the lease and releases it after its last write. standby, which may
// be nil, is called once if another instance is active.
func (f Flags) HoldLease(ctx context.Context, js jetstream.JetStream, service string, env Env, standby func() error) (*lease.Lease, error) {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketLeases)
	if err != nil {
		return nil, err
	}
	opt := f.LeaseOptions(service, env)
	ctx, cancel := context.WithCancelCause(ctx)
	l, err := lease.Hold(ctx, kv, opt, func(holder string) {
		env.Log.Info().Str("active", holder).Msg("another instance is active on this shard; standing by")
		env.Health.SetRole(f.Stream, RoleStandby)
		if standby != nil {
			if err := standby(); err != nil {
				cancel(err)
			}
		}
	})
	if err != nil {
		defer cancel(nil)
		return nil, errors.Join(err, context.Cause(ctx))
	}
	env.Log.Info().Msg("active on this shard")
	env.Health.SetRole(f.Stream, RoleActive)
	return l, nil
}

// LeaseOptions are the options of the lease of a service on the shard.
func (f Flags) LeaseOptions(service string, env Env) lease.Options {
	host, _ := os.Hostname()
	return lease.Options{
		Key: service + "." + f.Stream, Place: f.Instance, Log: env.Log, Report: func(problem string) { env.Health.Set("lease", problem) },
		// Two processes may have the same id, each in its container.
		Holder: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()),
	}
}

// LeaseError turns the error of work under a lease into ErrFenced if the lease is lost.
func LeaseError(l *lease.Lease, err error) error {
	if cause := context.Cause(l.Context()); errors.Is(cause, lease.ErrLost) {
		return fmt.Errorf("%w: %w", ErrFenced, cause)
	}
	return err
}

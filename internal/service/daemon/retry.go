package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// Pauses of RunAgain.
const (
	againMin = 500 * time.Millisecond
	againMax = 5 * time.Second
)

// RunAgain runs a service, and runs it again after a growing pause while it ends because
// JetStream does not answer or has no leader (streams.Transient). The log and, until the service
// is ready, the health report name the cause. Any other error is returned; nil if the service
// ends by itself.
func RunAgain(ctx context.Context, env Env, run func(context.Context, Env) error) error {
	ready := env.Ready
	env.Ready = func() error {
		env.Health.Set("jetstream_start", "")
		return ready()
	}
	waited := false
	pauses := retry.New(againMin, againMax)
	for {
		begun := time.Now()
		err := run(ctx, env)
		// A server that has answered before and is away now will come back.
		if ctx.Err() != nil || !streams.Transient(err) && !(waited && errors.Is(err, nats.ErrNoServers)) || errors.Is(err, ErrFenced) {
			return err
		}
		if time.Since(begun) > againMax {
			pauses.Reset()
		}
		wait := pauses.Next()
		waited = true
		env.Log.Warn().Err(err).Dur("retry_in", wait).Msg("waiting for JetStream")
		env.Health.BeginAgain()
		env.Health.Set("jetstream_start", "waiting for JetStream: "+err.Error())
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Background runs loops, each in a goroutine. stop ends their context, and returns when all have returned.
func Background(ctx context.Context, loops ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	return func() { cancel(); running.Wait() }
}

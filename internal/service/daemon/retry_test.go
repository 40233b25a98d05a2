package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// TestRunAgain: a service that finds JetStream without a leader at its start waits
// and begins again; what does not pass ends it at once.
func TestRunAgain(t *testing.T) {
	unavailable := fmt.Errorf("opening the bucket: %w", &jetstream.APIError{Code: 503, ErrorCode: 10008})
	broken := errors.New("receipt.key is missing")
	for _, tt := range []struct {
		name string
		ends []error // of one run after the other
		want error
		runs int
	}{
		{"JetStream comes", []error{unavailable, context.DeadlineExceeded, nil}, nil, 3},
		{"the servers are away for a while", []error{unavailable, nats.ErrNoServers, broken}, broken, 3},
		{"no server ever", []error{nats.ErrNoServers}, nats.ErrNoServers, 1},
		{"a fault that stays", []error{broken}, broken, 1},
		{"fenced", []error{fmt.Errorf("%w: %w", ErrFenced, context.DeadlineExceeded)}, ErrFenced, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, runs := NewHealth(), 0
			env := Env{Log: zerolog.Nop(), Health: h, Ready: func() error { return nil }}
			err := RunAgain(t.Context(), env, func(_ context.Context, env Env) error {
				if problems := h.Report().Problems; runs > 0 && (len(problems) != 1 || problems["jetstream_start"] == "") {
					t.Errorf("a run begins with the problems %v", problems)
				}
				runs++
				if runs == len(tt.ends) {
					if err := env.Ready(); err != nil || h.Report().Status == StatusUnhealthy {
						t.Error("still unhealthy once it is ready")
					}
				}
				h.Set("session_keys", "a problem that this run does not see the end of")
				return tt.ends[runs-1]
			})
			if !errors.Is(err, tt.want) || runs != tt.runs {
				t.Errorf("%v after %d runs", err, runs)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := RunAgain(ctx, Env{Log: zerolog.Nop(), Health: NewHealth()}, func(context.Context, Env) error { cancel(); return unavailable })
	if err == nil {
		t.Error("told to stop, and it says that all is well")
	}
}

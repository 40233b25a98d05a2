package daemon

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

const (
	reachEvery   = time.Second            // between two requests
	reachTimeout = 900 * time.Millisecond // of one request: the next one begins at the next second
	// reachFailures failures in a row mean that JetStream cannot be reached.
	reachFailures = 2
	// After every moveFailures failures in a row another server is tried.
	moveFailures = 4
)

// reachability judges a sequence of answers. Its zero value means reachable.
type reachability struct{ failed int }

// addAnswer adds an answer. down is false again at the first success; move means that another
// server should be tried.
func (r *reachability) addAnswer(answered bool) (down, move bool) {
	if answered {
		r.failed = 0
		return false, false
	}
	r.failed++
	return r.failed >= reachFailures, r.failed%moveFailures == 0
}

// WatchJetStream requests the state of the shard's stream, which its leader answers, once a
// second until stop is called. It calls changed, which may be nil, when JetStream becomes
// unreachable over the connection and when it is reachable again; the context of a call ends with
// the watch. While it is unreachable the connection moves to another server, if it knows one: a
// server that is cut off from the others keeps its clients.
func (f Flags) WatchJetStream(ctx context.Context, nc *nats.Conn, env Env, changed func(ctx context.Context, down bool)) (stop func()) {
	js, err := jetstream.New(nc)
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.watchLeader(ctx, js, nc, env, changed)
	}()
	return func() { cancel(); <-done }
}

func (f Flags) watchLeader(ctx context.Context, js jetstream.JetStream, nc *nats.Conn, env Env, changed func(ctx context.Context, down bool)) {
	var r reachability
	was := false
	for retry.Sleep(ctx, retry.UntilTick(reachEvery)) == nil {
		err := f.askLeader(ctx, js)
		if ctx.Err() != nil {
			return
		}
		down, move := r.addAnswer(err == nil)
		if down != was {
			was = down
			f.reportReach(env, nc, down, err)
			if changed != nil {
				changed(ctx, down)
			}
		}
		if move && nc.IsConnected() && len(nc.Servers()) > 1 {
			env.Log.Warn().Err(err).Str("server", nc.ConnectedServerName()).Msg("the server does not reach JetStream; trying another one")
			_ = nc.ForceReconnect() // fails only on a closed connection
		}
	}
}

// askLeader returns an error if no leader answers; any other answer is a success.
func (f Flags) askLeader(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if _, err := streams.StreamState(ctx, js, f.Stream); streams.Transient(err) {
		return err
	}
	return nil
}

func (f Flags) reportReach(env Env, nc *nats.Conn, down bool, err error) {
	if !down {
		env.Log.Info().Str("server", nc.ConnectedServerName()).Msg("JetStream can be reached again")
		env.Health.Set("jetstream", "")
		return
	}
	env.Log.Warn().Err(err).Str("server", nc.ConnectedServerName()).Msg("JetStream cannot be reached")
	env.Health.Set("jetstream", "the leader of stream "+f.Stream+" cannot be reached: "+err.Error())
}

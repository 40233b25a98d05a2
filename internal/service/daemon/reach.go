package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

const (
	reachEvery   = time.Second            // between two requests
	reachTimeout = 900 * time.Millisecond // of one request: the next one begins at the next second
	// reachFailures failures in a row mean that JetStream cannot be reached.
	reachFailures = 2
	// moveEvery is how long the other side cannot be reached before another server is tried.
	moveEvery = 4 * time.Second
)

// Reach judges whether the other side can be reached over a connection. Its zero value means that it can. One
// goroutine owns it.
type Reach struct {
	failed int       // in a row
	since  time.Time // of the first of them, or of the last move
}

// addAnswer adds an answer. down is false again at the first success; move means that another
// server should be tried.
func (r *Reach) addAnswer(answered bool, now time.Time) (down, move bool) {
	if answered {
		*r = Reach{}
		return false, false
	}
	if r.failed++; r.failed == 1 {
		r.since = now
	}
	if move = now.Sub(r.since) >= moveEvery; move {
		r.since = now
	}
	return r.failed >= reachFailures, move
}

// Note adds the outcome of a request and reports whether the other side cannot be reached, or the log does not exist.
// While no answer comes the connection moves to another server, if it knows one: a server that is cut off from the
// others keeps its clients.
func (r *Reach) Note(nc *nats.Conn, log zerolog.Logger, err error) (down bool) {
	lost := streams.Transient(err)
	down, move := r.addAnswer(!lost && !errors.Is(err, jetstream.ErrStreamNotFound), time.Now())
	if move && lost && nc.IsConnected() && len(nc.Servers()) > 1 {
		log.Warn().Err(err).Str("server", nc.ConnectedServerName()).Msg("the server does not reach the others; trying another one")
		_ = nc.ForceReconnect() // fails only on a closed connection
	}
	return down
}

// WatchJetStream requests the state of the shard's stream, which its leader answers, once a
// second until stop is called. It calls changed, which may be nil, when JetStream becomes
// unreachable over the connection and when it is reachable again; the context of a call ends with
// the watch. The connection leaves a server that is cut off (Reach).
func (f Flags) WatchJetStream(ctx context.Context, nc *nats.Conn, env Env, changed func(ctx context.Context, down bool)) (stop func()) {
	return f.watchLeader(ctx, nc, env, func(ctx context.Context, down bool, err error) {
		f.reportReach(env, nc, down, err)
		if changed != nil {
			changed(ctx, down)
		}
	})
}

// ConnectAgain opens a further connection of a service that watches JetStream over another one. It leaves a
// server that is cut off by itself.
func (f Flags) ConnectAgain(ctx context.Context, name string, env Env) (nc *nats.Conn, release func(), err error) {
	nc, closeConn, err := f.Connect(ctx, name, env, nil)
	if err != nil {
		return nil, nil, err
	}
	// The watch leaves no subscription behind, which the end of the requests of an admitter would wait for.
	nc.Opts.UseOldRequestStyle = true
	stop := f.watchLeader(ctx, nc, env, nil)
	return nc, func() { stop(); closeConn() }, nil
}

// watchLeader asks the leader of the shard's stream once a second and calls changed when the outcome changes. If
// that is nil, it asks only while the connection knows another server.
func (f Flags) watchLeader(ctx context.Context, nc *nats.Conn, env Env, changed func(ctx context.Context, down bool, err error)) (stop func()) {
	js, err := jetstream.New(nc)
	if err != nil {
		return func() {}
	}
	return Background(ctx, func(ctx context.Context) {
		var r Reach
		for was := false; retry.Sleep(ctx, retry.UntilTick(reachEvery)) == nil; {
			if changed == nil && len(nc.Servers()) < 2 {
				continue
			}
			err := f.askLeader(ctx, js)
			if ctx.Err() != nil {
				return
			}
			if down := r.Note(nc, env.Log, err); down != was && changed != nil {
				was = down
				changed(ctx, down, err)
			}
		}
	})
}

// askLeader asks the leader of the shard's stream for its state.
func (f Flags) askLeader(ctx context.Context, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	_, err := streams.StreamState(ctx, js, f.Stream)
	return err
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

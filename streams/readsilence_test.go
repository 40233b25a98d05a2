package streams

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// followIdle follows a stream without messages, whose server sends a heartbeat a second or nothing,
// until Idle was called calls times. Idle takes slow. All times are the bubble's.
func followIdle(t *testing.T, heartbeats bool, slow time.Duration, calls int) error {
	t.Helper()
	var server sync.WaitGroup
	defer server.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	in := newInbox()
	if heartbeats {
		server.Go(func() {
			for ctx.Err() == nil {
				in.put(&nats.Msg{Header: nats.Header{headerStatus: {"100"}}})
				time.Sleep(readHeartbeat)
			}
		})
	}
	r := &logReader{next: 1, options: ReadOptions{Log: zerolog.Nop(), heartbeat: readHeartbeat, stallAfter: 1000 * time.Hour, IdleEvery: time.Second}}
	r.options.Idle = func() error {
		time.Sleep(slow)
		if calls--; calls == 0 {
			stop()
		}
		return nil
	}
	return r.followStream(ctx, in, nil, 0)
}

// The time that Idle takes is not the server's silence: reading goes on, with the same consumer. A
// server that sends nothing is noticed all the same.
func TestSlowIdleIsNoSilence(t *testing.T) {
	for _, c := range []struct {
		heartbeats bool
		slow       time.Duration
		silent     bool
	}{
		{true, 0, false}, {true, 10 * readHeartbeat, false}, {false, 0, true}, {false, 10 * readHeartbeat, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := followIdle(t, c.heartbeats, c.slow, 50)
			if silent := !errors.Is(err, context.Canceled); silent != c.silent {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// While handle does not return, the inbox does not grow with the server's heartbeats. The last one is kept: it
// says what the server waits for.
func TestHeartbeatsDoNotPileUp(t *testing.T) {
	heartbeat := func(stalled string) *nats.Msg {
		return &nats.Msg{Header: nats.Header{headerStatus: {"100"}, headerStalled: {stalled}}}
	}
	flow := &nats.Msg{Reply: "$JS.FC.1", Header: nats.Header{headerStatus: {"100"}}}
	logged := &nats.Msg{Reply: "$JS.ACK.GOV.c.1.1.1.1.0", Header: nats.Header{headerStatus: {"100"}}}
	ended := &nats.Msg{Header: nats.Header{headerStatus: {"409"}}}
	in, last := newInbox(), heartbeat("$JS.FC.1")
	for range 100 {
		in.put(heartbeat(""))
	}
	in.put(last)
	for _, m := range []*nats.Msg{logged, logged, flow, flow, last, ended, ended} {
		in.put(m)
	}
	want := []*nats.Msg{last, logged, logged, flow, flow, last, ended, ended}
	if got := in.swap(nil); !slices.Equal(got, want) {
		t.Errorf("%d messages wait, want %d: %v", len(got), len(want), got)
	}
}

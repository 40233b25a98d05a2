package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/streams"
)

// lag publishes at a rate for a while and looks how long the outputs took. The
// times are the broker's.
func (b *correlateBench) lag(ctx context.Context, what string, hold time.Duration, perSecond float64) error {
	st, err := streams.StreamState(ctx, b.reader, streams.DefaultShard)
	if err != nil {
		return err
	}
	n, took, err := b.steady(ctx, hold, perSecond)
	if err != nil {
		return err
	}
	end, err := streams.StreamState(ctx, b.reader, streams.DefaultShard)
	if err != nil {
		return err
	}
	if _, err := b.publish(ctx, 1); err != nil { // so that a cursor covers the rest
		return err
	}
	if err := b.await(ctx, end.LastSeq); err != nil {
		return err
	}
	w, err := b.outputs(ctx, st.LastSeq+1)
	if err != nil {
		return err
	}
	if len(w.lags) == 0 {
		return errors.New("the correlator put nothing out")
	}
	slices.Sort(w.lags)
	millis := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return b.print(correlateResult{What: what, Count: n, PerSecond: float64(n) / took.Seconds(), Asked: perSecond, Writes: w.writes,
		P50: millis(w.lags[len(w.lags)/2]), P99: millis(w.lags[len(w.lags)*99/100])})
}

// steadyEvery is how often each of the two publishers sends what has gathered.
const steadyEvery = 20 * time.Millisecond

// steady publishes messages at a rate for a while, and how many they were. The
// admitter and the runtime send in turns, at even distances: a runtime reports
// calls that were admitted some time ago, and nobody waits for the other one. Who
// falls behind sends the next group at once. Who is late every time, because the
// acknowledgements take longer than the distance, never rests: then what is
// published is all that the server takes from one publisher after the other, and
// not the rate.
func (b *correlateBench) steady(ctx context.Context, hold time.Duration, perSecond float64) (n int, took time.Duration, err error) {
	calls := min(max(int(perSecond*steadyEvery.Seconds()/trafficMessages), 1), trafficGroup)
	every := time.Duration(float64(calls*trafficMessages) / perSecond * float64(time.Second) / 2)
	begun := time.Now()
	for turn := time.Duration(1); time.Since(begun) < hold || turn%2 == 0; turn++ {
		sent, err := b.turn(ctx, calls, turn%2 == 0)
		if err != nil {
			return n, 0, err
		}
		n += sent
		select {
		case <-ctx.Done():
			return n, 0, ctx.Err()
		case <-time.After(time.Until(begun.Add(turn * every))):
		}
	}
	return n, time.Since(begun), nil
}

// turn publishes what the admitter writes of the next calls, or what the runtime
// then reports of them.
func (b *correlateBench) turn(ctx context.Context, calls int, report bool) (int, error) {
	if report {
		msgs := b.traffic.reported(b.published, calls, b.asked)
		b.published += calls
		return len(msgs), streams.PublishEvents(ctx, b.runtime, msgs)
	}
	b.asked = time.Now()
	msgs, err := b.traffic.admitted(b.published, calls, b.asked)
	if err != nil {
		return 0, err
	}
	return len(msgs), streams.PublishEvents(ctx, b.admitter, msgs)
}

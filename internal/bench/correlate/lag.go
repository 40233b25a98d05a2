package correlate

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/bench/callplan"
	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// lags measures the delay of outputs while the log grows: at the rate that publishers without
// pauses, server and correlator reach together, and at half of it, with groups of the same size
// half as often. alone is the correlator's rate on an existing log. If given is not 0, only that
// rate is measured.
func (b *correlateBench) lags(ctx context.Context, hold time.Duration, alone, given float64) error {
	if given > 0 {
		_, err := b.lag(ctx, "lag of the outputs", hold, groupFor(given), given)
		return err
	}
	group := groupFor(alone / 2)
	most, err := b.lag(ctx, "lag of the outputs at the maximum load", hold, group, 0)
	if err == nil {
		_, err = b.lag(ctx, "lag of the outputs at half of that", hold, group, most/2)
	}
	return err
}

// lag publishes for the time hold, calls at a time, and measures the delay of the outputs by the
// broker's clock. It returns the messages per second that were reached.
func (b *correlateBench) lag(ctx context.Context, what string, hold time.Duration, calls int, perSecond float64) (float64, error) {
	st, err := streams.StreamState(ctx, b.reader, streams.DefaultShard)
	if err != nil {
		return 0, err
	}
	n, took, err := b.steady(ctx, hold, calls, perSecond)
	if err != nil {
		return 0, err
	}
	end, err := streams.StreamState(ctx, b.reader, streams.DefaultShard)
	if err != nil {
		return 0, err
	}
	if _, err := b.publish(ctx, 1); err != nil { // so that a cursor covers the rest
		return 0, err
	}
	if err := b.await(ctx, end.LastSeq); err != nil {
		return 0, err
	}
	w, err := b.outputs(ctx, st.LastSeq+1)
	if err != nil {
		return 0, err
	}
	came := float64(n) / took.Seconds()
	return came, b.print(measure.Result{What: what, Count: n, PerSecond: came, Asked: perSecond, Writes: len(w.cursors),
		LagP50: measure.Millis(callplan.DurationAt(w.lags, 50)), LagP99: measure.Millis(callplan.DurationAt(w.lags, 99))})
}

// groupEvery is how often each of the two publishers sends its collected messages at a given
// rate.
const groupEvery = 20 * time.Millisecond

// groupFor is the number of calls in a group at a rate.
func groupFor(perSecond float64) int {
	return min(max(int(perSecond*groupEvery.Seconds()/trafficMessages), 1), trafficGroup)
}

// steady publishes messages for the time hold, calls at a time, at a rate or, if that is 0,
// without pauses. It returns their number and the time. The admitter and the runtime send
// alternately, at equal intervals: a runtime reports calls that were admitted some time ago, and
// neither waits for the other. A publisher that falls behind sends its next group at once. If
// acknowledgements always take longer than the interval, there are no pauses: the rate is then
// what the server takes from one publisher after the other, and not the given one.
func (b *correlateBench) steady(ctx context.Context, hold time.Duration, calls int, perSecond float64) (n int, took time.Duration, err error) {
	var every time.Duration
	if perSecond > 0 {
		every = time.Duration(float64(calls*trafficMessages) / perSecond * float64(time.Second) / 2)
	}
	begun := time.Now()
	for turn := 1; time.Since(begun) < hold || turn%2 == 0; turn++ {
		sent, err := b.turn(ctx, calls, turn%2 == 0)
		if err != nil {
			return n, 0, err
		}
		n += sent
		if err := retry.Sleep(ctx, time.Until(begun.Add(time.Duration(turn)*every))); err != nil {
			return n, 0, err
		}
	}
	return n, time.Since(begun), nil
}

// turn publishes the admitter's messages of the next calls, or the runtime's reports of them.
func (b *correlateBench) turn(ctx context.Context, calls int, report bool) (int, error) {
	if report {
		msgs := b.traffic.reported(b.published, calls, b.asked, time.Now())
		b.published += calls
		return len(msgs), streams.StoreAll(ctx, b.admitter, msgs)
	}
	b.asked = time.Now()
	msgs, err := b.traffic.admitted(b.published, calls, b.asked)
	if err != nil {
		return 0, err
	}
	return len(msgs), streams.StoreAll(ctx, b.admitter, msgs)
}

package recorded

import (
	"context"
	"sort"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/streams"
)

// ClockBack is how far broker times may go back on a log for SeqAt to be exact: a
// server's clock is set, or another server of the cluster becomes the leader.
const ClockBack = 5 * time.Second

// SeqAt gives the first sequence that was stored at a time or after it, one
// beyond the last if there is none. If broker times go back by more than ClockBack
// around there, it gives one that was stored then, which may not be the first.
func (l Log) SeqAt(ctx context.Context, st streams.State, at time.Time) (uint64, error) {
	i, err := searchFirstAt(span(st), at, l.storedTimes(ctx, st))
	return st.FirstSeq + uint64(i), err
}

// nearSeqAt is SeqAt where it is enough that all that was stored ClockBack later or more
// lies behind it.
func (l Log) nearSeqAt(ctx context.Context, st streams.State, at time.Time) (uint64, error) {
	i, err := searchAnyAt(span(st), at, l.storedTimes(ctx, st))
	return st.FirstSeq + uint64(i), err
}

// span is how many sequences there are.
func span(st streams.State) int {
	if st.LastSeq < st.FirstSeq {
		return 0
	}
	return int(st.LastSeq - st.FirstSeq + 1)
}

// timeOf tells when the message at a place was stored. It may be asked by several at
// once.
type timeOf func(i int) (stored time.Time, err error)

// endOfTime is stored at a place behind the last message.
var endOfTime = time.Unix(1<<40, 0)

func (l Log) storedTimes(ctx context.Context, st streams.State) timeOf {
	return func(i int) (time.Time, error) {
		// The next one there is, where this one was erased.
		m, err := streams.NextBySubject(ctx, l.JS, l.Stream, ">", st.FirstSeq+uint64(i))
		if err != nil || m == nil {
			return endOfTime, err
		}
		return m.Time, nil
	}
}

// searchAnyAt finds, among n places, one that was stored at a time or after it while the
// one before was not: the only one, where times do not go back. Where they do so by
// some time d at most, all that was stored d later or more lies behind it.
func searchAnyAt(n int, at time.Time, stored timeOf) (int, error) {
	var failed error
	i := sort.Search(n, func(i int) bool {
		if failed != nil {
			return true
		}
		t, err := stored(i)
		failed = err
		return err != nil || !t.Before(at)
	})
	return i, failed
}

// searchFirstAt finds the first of n places that was stored at a time or after it. It lies
// behind what was stored ClockBack earlier, and not behind any that was stored then;
// what is between them, most often very little, is looked at one by one.
func searchFirstAt(n int, at time.Time, stored timeOf) (int, error) {
	end, err := searchAnyAt(n, at, stored)
	if err != nil {
		return end, err
	}
	from, err := searchAnyAt(end, at.Add(-ClockBack), stored)
	for ; err == nil && from < end; from += workers {
		times := make([]time.Time, min(workers, end-from))
		var g errgroup.Group
		for k := range times {
			g.Go(func() (err error) {
				times[k], err = stored(from + k)
				return err
			})
		}
		if err = g.Wait(); err != nil {
			break
		}
		for k, t := range times {
			if !t.Before(at) {
				return from + k, nil
			}
		}
	}
	return end, err
}

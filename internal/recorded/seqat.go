package recorded

import (
	"context"
	"sort"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/streams"
)

// ClockBack is how far broker times on a log may go back for SeqAt to be exact: a server's clock
// can be set, or another server of the cluster becomes the leader.
const ClockBack = 5 * time.Second

// SeqAt returns the first sequence that was stored at or after a time, or one beyond the last if
// there is none. If broker times go back by more than ClockBack around there, it returns a
// sequence stored at that time that may not be the first.
func (l Log) SeqAt(ctx context.Context, st streams.State, at time.Time) (uint64, error) {
	i, err := searchFirstAt(seqCount(st), at, l.storedTimes(ctx, st))
	return st.FirstSeq + uint64(i), err
}

// nearSeqAt is SeqAt with less precision: everything stored at least ClockBack later is behind
// the result.
func (l Log) nearSeqAt(ctx context.Context, st streams.State, at time.Time) (uint64, error) {
	i, err := searchAnyAt(seqCount(st), at, l.storedTimes(ctx, st))
	return st.FirstSeq + uint64(i), err
}

// seqCount is the number of sequences.
func seqCount(st streams.State) int {
	if st.LastSeq < st.FirstSeq {
		return 0
	}
	return int(st.LastSeq - st.FirstSeq + 1)
}

// timeOf returns when the message at a position was stored. It may be called concurrently.
type timeOf func(i int) (stored time.Time, err error)

// endOfTime is the time at a position behind the last message.
var endOfTime = time.Unix(1<<40, 0)

func (l Log) storedTimes(ctx context.Context, st streams.State) timeOf {
	return func(i int) (time.Time, error) {
		// If the message was erased, the next one that exists.
		m, err := streams.NextBySubject(ctx, l.JS, l.Stream, ">", st.FirstSeq+uint64(i))
		if err != nil || m == nil {
			return endOfTime, err
		}
		return m.Time, nil
	}
}

// searchAnyAt finds, among n positions, one that was stored at or after a time while the one
// before was not. If times do not go back, there is only one. If they go back by at most d,
// everything stored at least d later is behind it.
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

// searchFirstAt finds the first of n positions that was stored at or after a time. It is behind
// everything stored ClockBack earlier, and not behind any position that searchAnyAt returns; the
// positions between, usually few, are checked one by one.
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

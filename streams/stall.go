package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DefaultStallAfter is how long a reader may stand still, while the stream's leader holds a message
// for it, before its consumer is recreated.
const DefaultStallAfter = 3 * time.Second

// StallDetector detects that a reader stands still although the leader of its stream holds a message
// for it. A consumer on a lagging replica (with a full disk, for example) does not report that:
// its heartbeats continue, and its own count of pending messages is zero. The zero StallDetector
// is ready to use. One goroutine owns it.
type StallDetector struct {
	After time.Duration // DefaultStallAfter if zero
	next  uint64
	since time.Time // when due was first observed at next; zero if nothing is due
}

// Observe records an observation: next is the sequence that the reader expects, due is a sequence
// not below next that the leader holds, or 0. It reports whether the reader has stood at next with
// something due for After.
func (s *StallDetector) Observe(next, due uint64, now time.Time) bool {
	if next != s.next {
		s.next, s.since = next, time.Time{}
	}
	switch {
	case due < next || due == 0:
		s.since = time.Time{}
		return false
	case s.since.IsZero():
		s.since = now
		return false
	}
	after := s.After
	if after == 0 {
		after = DefaultStallAfter
	}
	return now.Sub(s.since) >= after
}

// nextDue asks the stream's leader for the first sequence from next on with a subject that matches
// one of the filters (no filters match all). last is the end of the stream; due is 0 if nothing
// up to last matches.
func nextDue(ctx context.Context, js jetstream.JetStream, stream string, filters []string, next uint64) (due, last uint64, err error) {
	st, err := StreamState(ctx, js, stream)
	if err != nil || st.LastSeq < next {
		return 0, st.LastSeq, err
	}
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, f := range filters {
		m, err := NextBySubject(ctx, js, stream, f, next)
		if err != nil {
			return 0, 0, err
		}
		if m != nil && (due == 0 || m.Seq < due) {
			due = m.Seq
		}
	}
	return due, st.LastSeq, nil
}

// lastDue asks the stream's leader for the last sequence with a subject that matches one of the
// filters and that was stored at since or later. It is 0 if there is none.
func lastDue(ctx context.Context, js jetstream.JetStream, stream string, filters []string, since time.Time) (last uint64, err error) {
	for _, f := range filters {
		m, err := LastBySubject(ctx, js, stream, f)
		if err != nil {
			return 0, err
		}
		if m != nil && !m.Time.Before(since) {
			last = max(last, m.Seq)
		}
	}
	return last, nil
}

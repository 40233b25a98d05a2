// Package erasures reads the log's erasure records: which sequences are missing from the log, and
// why. A sequence that is missing without a record was lost or tampered with. The correlator, the
// auditor and the command line use a Log; planning an erasure is in package erasureplan.
package erasures

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/streams"
)

const readTimeout = 5 * time.Second

// Record is an erasure record with its log sequence and the time at which the log stored it.
type Record struct {
	Seq    uint64
	Stored time.Time
	events.Erasure
}

// Log reads the erasure records of a log. One goroutine owns it.
type Log struct {
	JS     jetstream.JetStream
	Stream string
	Space  subject.Space
	Known  note.Verifiers // the checkpoint key

	next    uint64 // next sequence to read
	records []Record
	open    map[string][]int // indexes of the records of erasures that are not done, by erasure
	erased  retention.SpanSet
}

// Subject is the subject of erasure records.
func (l *Log) Subject() string { return l.Space.Control(l.Stream, events.ControlErasure) }

// Load reads the records since the last call. Records that the checkpoint key did not sign, or of
// another incarnation of the log, are skipped and explain nothing. After an error it goes on where it came to.
func (l *Log) Load(ctx context.Context) error {
	shard, err := l.shard(ctx)
	if err != nil {
		return err
	}
	var spans []events.Span
	defer func() { l.erased.Add(spans) }()
	for m, err := range streams.EachLinked(ctx, l.JS, l.Stream, l.Subject(), l.next) {
		if err != nil {
			return fmt.Errorf("reading the erasure records: %w", err)
		}
		l.next = m.Seq + 1
		e, err := events.DecodeRecord[events.Erasure](m.Body)
		if err != nil || e.Shard != shard || !signing.CheckErasure(l.Known, e) || lastSeq(e.Sequences) >= m.Seq {
			continue
		}
		spans = append(spans, e.Sequences...)
		l.add(Record{m.Seq, m.Time, e})
	}
	return nil
}

// shard reads the incarnation of the log.
func (l *Log) shard(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := streams.StreamState(ctx, l.JS, l.Stream)
	return streams.IncarnationName(l.Stream, st.Created), err
}

// add adds a record. Records of an erasure that is done lose their sequences, which the set has: they are nearly all
// of the memory.
func (l *Log) add(r Record) {
	if l.open == nil {
		l.open = map[string][]int{}
	}
	l.open[r.ErasureID] = append(l.open[r.ErasureID], len(l.records))
	l.records = append(l.records, r)
	if r.State == events.ErasureDone {
		for _, i := range l.open[r.ErasureID] {
			l.records[i].Sequences = nil
		}
		delete(l.open, r.ErasureID)
	}
}

func lastSeq(list []events.Span) uint64 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1][1]
}

// Records returns the valid records, in the order of the log. Those of an erasure that is done have no sequences.
func (l *Log) Records() []Record { return l.records }

// Covers reports whether a record names a sequence.
func (l *Log) Covers(seq uint64) bool { return l.erased.Covers(seq) }

// Explain checks that erasure records name every sequence of a gap, loading new records if
// needed. Its error is a *streams.GapError if no record names one of the sequences.
func (l *Log) Explain(ctx context.Context, from, to uint64) error {
	if l.erased.FirstUncovered(from, to) == 0 {
		return nil
	}
	if err := l.Load(ctx); err != nil {
		return streams.RetryLater(err)
	}
	if seq := l.erased.FirstUncovered(from, to); seq != 0 {
		return &streams.GapError{Stream: l.Stream, Want: seq, Got: to + 1}
	}
	return nil
}

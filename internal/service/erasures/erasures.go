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
	spans   []events.Span // of the valid records
}

// Subject is the subject of erasure records.
func (l *Log) Subject() string { return l.Space.Control(l.Stream, events.ControlErasure) }

// Load reads the records since the last call. Records that the checkpoint key did not sign, or of
// another incarnation of the log, are skipped and explain nothing.
func (l *Log) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := streams.StreamState(ctx, l.JS, l.Stream)
	if err != nil {
		return err
	}
	shard := streams.IncarnationName(l.Stream, st.Created)
	for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, l.Subject(), l.next) {
		if err != nil {
			return fmt.Errorf("reading the erasure records: %w", err)
		}
		l.next = m.Seq + 1
		e, err := events.DecodeRecord[events.Erasure](m.Body)
		if err != nil || e.Shard != shard || !signing.CheckErasure(l.Known, e) || lastSeq(e.Sequences) >= m.Seq {
			continue
		}
		l.records = append(l.records, Record{m.Seq, m.Time, e})
		l.spans = append(l.spans, e.Sequences...)
	}
	return nil
}

func lastSeq(list []events.Span) uint64 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1][1]
}

// Records returns the valid records, in the order of the log.
func (l *Log) Records() []Record { return l.records }

// RecordOf returns the first record that names a sequence, nil if none does.
func (l *Log) RecordOf(seq uint64) *Record {
	for i := range l.records {
		if l.records[i].Covers(seq) {
			return &l.records[i]
		}
	}
	return nil
}

// Explain checks that erasure records name every sequence of a gap, loading new records if
// needed. Its error is a *streams.GapError if no record names one of the sequences.
func (l *Log) Explain(ctx context.Context, from, to uint64) error {
	if retention.FirstUncovered(l.spans, from, to) == 0 {
		return nil
	}
	if err := l.Load(ctx); err != nil {
		return streams.RetryLater(err)
	}
	if seq := retention.FirstUncovered(l.spans, from, to); seq != 0 {
		return &streams.GapError{Stream: l.Stream, Want: seq, Got: to + 1}
	}
	return nil
}

// Package erasures reads the log's erasure records: what is missing from the log
// and why. A sequence that is missing without one was lost or tampered with.
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

// Record is an erasure record and its place in the log.
type Record struct {
	Seq uint64
	events.Erasure
}

// Log is where erasure records are. Its owner is one goroutine.
type Log struct {
	JS     jetstream.JetStream
	Stream string
	Space  subject.Space
	Known  note.Verifiers // the checkpoint key

	next    uint64 // where to read on
	records []Record
	spans   []events.Span // of the records that count
}

// Subject is where erasure records are.
func (l *Log) Subject() string { return l.Space.Control(l.Stream, events.ControlErasure) }

// Load reads the records that came since the last time. Those that the checkpoint
// key did not sign, or that are of another incarnation of the log, explain nothing
// and are passed over.
func (l *Log) Load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := streams.StreamState(ctx, l.JS, l.Stream)
	if err != nil {
		return err
	}
	shard := streams.EpochName(l.Stream, st.Created)
	for {
		m, err := streams.NextBySubject(ctx, l.JS, l.Stream, l.Subject(), max(1, l.next))
		if err != nil {
			return fmt.Errorf("reading the erasure records: %w", err)
		}
		if m == nil {
			return nil
		}
		l.next = m.Seq + 1
		e, err := events.DecodeRecord[events.Erasure](m.Body)
		if err != nil || e.Shard != shard || !signing.CheckErasure(l.Known, e) || lastSeq(e.Sequences) >= m.Seq {
			continue
		}
		l.records = append(l.records, Record{m.Seq, e})
		l.spans = append(l.spans, e.Sequences...)
	}
}

func lastSeq(list []events.Span) uint64 {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1][1]
}

// Records are the records that count, in the order of the log.
func (l *Log) Records() []Record { return l.records }

// RecordOf gives the first record that names a sequence, nil if none does.
func (l *Log) RecordOf(seq uint64) *Record {
	for i := range l.records {
		if l.records[i].Covers(seq) {
			return &l.records[i]
		}
	}
	return nil
}

// Explain tells whether all sequences from one to another are named by an erasure
// record. It reads the log's newest ones first; its error is a *streams.GapError
// if a sequence is named by none.
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

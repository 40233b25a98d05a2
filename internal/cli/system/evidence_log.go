package system

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/streams"
)

// EvidenceLog is the log of the evidence, as far as an operator may read it; nil without a
// server.
type EvidenceLog struct {
	js        jetstream.JetStream
	stream    string
	Shard     string // the current incarnation
	Last      uint64 // the last sequence when it was connected to
	Published []verify.Published
	at        time.Time       // when it was connected to, by the broker's clock
	trusted   []note.Verifier // witnesses that the operators trust
	hangUp    func()
}

// ConnectEvidenceLog connects to the log and reads the newest checkpoint from NATS, where a
// change of the database cannot remove it.
func ConnectEvidenceLog(ctx context.Context, t *target.Target) (*EvidenceLog, error) {
	nc, err := t.Connect(ctx, target.Operator)
	if err != nil {
		return nil, err
	}
	l := &EvidenceLog{stream: t.Stream, hangUp: nc.Close}
	if l.js, err = jetstream.New(nc); err == nil {
		err = l.read(ctx, subject.Space{Prefix: t.Prefix}.Checkpoints(t.Stream))
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return l, nil
}

func (l *EvidenceLog) read(ctx context.Context, checkpoints string) error {
	m, err := streams.LastBySubject(ctx, l.js, streams.StreamCheckpoints, checkpoints)
	if err != nil {
		return fmt.Errorf("reading the published checkpoint: %w", err)
	}
	if m != nil {
		l.Published = []verify.Published{published(m)}
	}
	st, err := streams.StreamState(ctx, l.js, l.stream)
	if err != nil {
		return err
	}
	l.Shard, l.Last, l.at = streams.IncarnationName(l.stream, st.Created), st.LastSeq, st.At
	trusted, err := witnessbucket.TrustedWitnesses(ctx, l.js)
	l.trusted = witnessbucket.Verifiers(trusted)
	return err
}

// Cosigners are the witnesses that the system itself names. No check depends on them: a caller
// that requires signatures gives the keys (--witness).
func (l *EvidenceLog) Cosigners() []note.Verifier {
	if l == nil {
		return nil
	}
	return l.trusted
}

// Checkpoints yields all published checkpoints, the newest first. An error is the last thing that it yields.
func (l *EvidenceLog) Checkpoints(ctx context.Context) iter.Seq2[verify.Published, error] {
	return func(yield func(verify.Published, error) bool) {
		for m, err := range streams.MessagesBack(ctx, l.js, streams.StreamCheckpoints) {
			if err != nil {
				yield(verify.Published{}, fmt.Errorf("reading the published checkpoints: %w", err))
				return
			}
			if !yield(published(m), nil) {
				return
			}
		}
	}
}

func published(m *events.LogMessage) verify.Published {
	return verify.Published{Source: fmt.Sprintf("stream %s, sequence %d", streams.StreamCheckpoints, m.Seq), Text: string(m.Body)}
}

// Close closes the connection.
func (l *EvidenceLog) Close() {
	if l != nil {
		l.hangUp()
	}
}

// IsOf reports whether this is the log of a shard and can be read.
func (l *EvidenceLog) IsOf(shard string) bool { return l != nil && l.Shard == shard }

// Message reads one message, nil if there is none with that sequence.
func (l *EvidenceLog) Message(ctx context.Context, seq uint64) (*events.LogMessage, error) {
	return streams.MessageAt(ctx, l.js, l.stream, seq)
}

// mostGaps bounds the listed gaps of a log.
const mostGaps = 100

// Erasures returns a reader of the erasure records that a checkpoint key signed.
func Erasures(js jetstream.JetStream, stream, prefix string, known []note.Verifier) *erasures.Log {
	return &erasures.Log{JS: js, Stream: stream, Space: subject.Space{Prefix: prefix}, Known: note.VerifierList(known...)}
}

// AddGaps adds the missing messages of a shard's log to its report.
func (l *EvidenceLog) AddGaps(ctx context.Context, prefix string, known []note.Verifier, r *verify.Report) error {
	erased, unexplained, err := Erasures(l.js, l.stream, prefix, known).Missing(ctx, mostGaps)
	if err == nil {
		r.AddLogGaps(erased, unexplained)
	}
	return err
}

// auditorDelay is how long a message may be on the log and not in the evidence, by the broker's clock. A running
// auditor stores it within seconds.
const auditorDelay = time.Minute

// AddMissingEnd adds to the report of a shard, or of its part before until, how far its records end before the
// log did when it was connected to. A report with gaps in its records already says so.
func (l *EvidenceLog) AddMissingEnd(ctx context.Context, until time.Time, r *verify.Report) error {
	return l.addMissingEnd(ctx, until, r, l.Message)
}

func (l *EvidenceLog) addMissingEnd(ctx context.Context, until time.Time, r *verify.Report, message func(context.Context, uint64) (*events.LogMessage, error)) error {
	last := uint64(r.Size)
	if _, hidden := r.FirstIncompleteness(); hidden || l.Last <= last {
		return nil
	}
	first, err := message(ctx, last+1)
	if err == nil && first == nil { // it was erased
		first, err = message(ctx, l.Last)
	}
	switch {
	case err != nil:
		return err
	case first == nil:
		r.AddLogAhead(l.Last-last, events.Time{}, false)
	case until.IsZero() || first.Time.Before(until):
		r.AddLogAhead(l.Last-last, events.At(first.Time), l.at.Sub(first.Time) > auditorDelay)
	}
	return nil
}

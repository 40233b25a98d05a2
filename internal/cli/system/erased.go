package system

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/service/erasures"
)

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

package main

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/erasures"
)

// mostGaps bounds what is said of a log with holes.
const mostGaps = 100

// erasuresOf reads the erasure records of a log that a checkpoint key signed.
func erasuresOf(js jetstream.JetStream, stream, prefix string, known []note.Verifier) *erasures.Log {
	return &erasures.Log{JS: js, Stream: stream, Space: subject.Space{Prefix: prefix}, Known: note.VerifierList(known...)}
}

// gaps adds to the report of a shard what is missing from its log.
func (l *openedLog) gaps(ctx context.Context, prefix string, known []note.Verifier, r *evidence.Report) error {
	erased, unexplained, err := erasuresOf(l.js, l.stream, prefix, known).Missing(ctx, mostGaps)
	if err == nil {
		r.AddLogGaps(erased, unexplained)
	}
	return err
}

package erasures

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/evidence/retention"
)

// Missing counts the missing sequences of the log that erasure records explain, and lists those
// that none explains, up to the number most.
func (l *Log) Missing(ctx context.Context, most int) (erased int, unexplained []uint64, err error) {
	s, err := l.JS.Stream(ctx, l.Stream)
	if err != nil {
		return 0, nil, fmt.Errorf("reading stream %s: %w", l.Stream, err)
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return 0, nil, fmt.Errorf("reading what is missing from stream %s: %w", l.Stream, err)
	}
	// Only after that: a record is in the log before its messages are deleted.
	if err := l.Load(ctx); err != nil {
		return 0, nil, err
	}
	look := func(seq uint64) {
		switch {
		case retention.FirstUncovered(l.spans, seq, seq) == 0:
			erased++
		case len(unexplained) < most:
			unexplained = append(unexplained, seq)
		}
	}
	for seq := uint64(1); seq < info.State.FirstSeq; seq++ {
		look(seq)
	}
	for _, seq := range info.State.Deleted {
		if seq >= info.State.FirstSeq {
			look(seq)
		}
	}
	return erased, unexplained, nil
}

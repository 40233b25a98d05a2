package erasures

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/evidence/retention"
)

// Missing lists the sequences that the log no longer has: how many of them its
// erasure records explain, and those that none does, at most some of these.
func (l *Log) Missing(ctx context.Context, most int) (erased int, unexplained []uint64, err error) {
	s, err := l.JS.Stream(ctx, l.Stream)
	if err != nil {
		return 0, nil, fmt.Errorf("reading stream %s: %w", l.Stream, err)
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return 0, nil, fmt.Errorf("reading what is missing from stream %s: %w", l.Stream, err)
	}
	// Only now: a record stands in the log before what it is about goes.
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

package erasures

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
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
	count := func(from, to uint64) {
		for from <= to {
			lost := l.erased.FirstUncovered(from, to)
			if lost == 0 {
				erased += int(to - from + 1)
				return
			}
			erased += int(lost - from)
			if len(unexplained) < most {
				unexplained = append(unexplained, lost)
			}
			from = lost + 1
		}
	}
	first := max(1, info.State.FirstSeq)
	count(1, first-1)
	for _, seq := range info.State.Deleted {
		if seq >= first {
			count(seq, seq)
		}
	}
	return erased, unexplained, nil
}

package erasures

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
)

// Missing counts the missing sequences of the log that erasure records explain, and lists those
// that none explains, up to the number most.
func (l *Log) Missing(ctx context.Context, most int) (erased int, unexplained []uint64, err error) {
	first, deleted, err := l.deleted(ctx)
	if err != nil {
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
	count(1, first-1)
	for _, seq := range deleted {
		count(seq, seq)
	}
	return erased, unexplained, nil
}

// Progress counts the messages that a tenant's begun erasures name, and those of them that are gone. Erasures that are
// done do not count.
func (l *Log) Progress(ctx context.Context, tenant string) (gone, named int, err error) {
	first, deleted, err := l.deleted(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, indexes := range l.open {
		for _, i := range indexes {
			if r := l.records[i]; r.Tenant == tenant {
				named += int(r.Messages)
				gone += countIn(r.Sequences, first, deleted)
			}
		}
	}
	return gone, named, nil
}

// countIn counts the sequences of spans that are below first, or deleted (in order).
func countIn(spans []events.Span, first uint64, deleted []uint64) (n int) {
	for _, s := range spans {
		for seq := s[0]; seq <= s[1]; seq++ {
			if _, found := slices.BinarySearch(deleted, seq); found || seq < first {
				n++
			}
		}
	}
	return n
}

// deleted reads the first sequence of the log, and which are missing behind it, in order. Then it loads the records:
// each is in the log before its messages are deleted.
func (l *Log) deleted(ctx context.Context) (first uint64, list []uint64, err error) {
	s, err := l.JS.Stream(ctx, l.Stream)
	if err != nil {
		return 0, nil, fmt.Errorf("reading stream %s: %w", l.Stream, err)
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return 0, nil, fmt.Errorf("reading what is missing from stream %s: %w", l.Stream, err)
	}
	first = max(1, info.State.FirstSeq)
	list = slices.DeleteFunc(info.State.Deleted, func(seq uint64) bool { return seq < first })
	slices.Sort(list)
	return first, list, l.Load(ctx)
}

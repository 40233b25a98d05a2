package recorded

import (
	"context"
	"errors"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// ErrEnough, returned by fn, ends Each without an error.
var ErrEnough = errors.New("enough")

// Each passes the messages of a subject from a sequence on to fn, in order.
func (l Log) Each(ctx context.Context, subj string, from uint64, fn func(events.LogMessage) error) error {
	for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, subj, from) {
		if err == nil {
			err = fn(*m)
		}
		if errors.Is(err, ErrEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

package daemon

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/streams"
)

// StreamHead asks the server how far a stream goes, for the metrics of who reads it.
func StreamHead(js jetstream.JetStream, stream string) metrics.Head {
	return func(ctx context.Context, next uint64) (last uint64, stored time.Time, err error) {
		st, err := streams.StreamState(ctx, js, stream)
		if err != nil || st.LastSeq < next {
			return st.LastSeq, time.Time{}, err
		}
		m, err := streams.MessageAt(ctx, js, stream, next)
		if err == nil && m != nil {
			stored = m.Time
		}
		return st.LastSeq, stored, err
	}
}

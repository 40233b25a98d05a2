package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

const (
	bucketEvery = time.Second      // between two looks at a bucket
	bucketStale = 15 * time.Second // a view that was not confirmed for so long counts no more
)

// bucketView looks for changes of a bucket, so that requests need not ask NATS. A change counts within
// bucketEvery and one look.
type bucketView struct {
	bucket, prefix string
	js             jetstream.JetStream
	apply          func(values map[string][]byte) // by the rest of the key; never called at the same time as itself

	mu        sync.Mutex
	read      bool
	revision  uint64
	confirmed time.Time
}

// isCurrent reports whether the view was confirmed lately.
func (v *bucketView) isCurrent() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return time.Since(v.confirmed) <= bucketStale
}

// follow keeps the view current until ctx ends. problem says in the health report what a failure means.
func (v *bucketView) follow(ctx context.Context, env daemon.Env, problem string) {
	for retry.Sleep(ctx, bucketEvery) == nil {
		err := v.load(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			env.Health.Set(v.bucket, problem)
		default:
			env.Health.Set(v.bucket, "")
		}
	}
}

// load reads the bucket if it has changed.
func (v *bucketView) load(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, bucketStale)
	defer cancel()
	st, err := streams.StreamState(ctx, v.js, "KV_"+v.bucket)
	if err != nil {
		return err
	}
	v.mu.Lock()
	known := v.read && v.revision == st.LastSeq
	v.mu.Unlock()
	if !known {
		values, err := streams.KVUnder(ctx, v.js, v.bucket, v.prefix)
		if err != nil {
			return err
		}
		v.apply(values)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read, v.revision, v.confirmed = true, st.LastSeq, begun
	return nil
}

package admitter

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/streams"
)

// leaderTimeout is for one question to the leader of a bucket.
const leaderTimeout = 3 * time.Second

// bucketLag compares a watch of a bucket with the bucket's leader. A watch runs on
// any replica; one that lags delivers an old state as if it were complete, or stands
// still without an error. The goroutine that follows the bucket owns it.
type bucketLag struct {
	js     jetstream.JetStream
	bucket string

	stall   streams.Stall
	looks   chan bucketLook
	looking bool
}

// bucketLook is what the leader said when revision newest was the newest seen.
type bucketLook struct {
	newest, due uint64
	err         error
}

func newBucketLag(js jetstream.JetStream, bucket string) *bucketLag {
	return &bucketLag{js: js, bucket: bucket, looks: make(chan bucketLook, 1)}
}

func (l *bucketLag) stream() string { return "KV_" + l.bucket }

// floor is the revision that a complete read of the bucket comes to at least.
func (l *bucketLag) floor(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, l.js, l.stream(), "$KV."+l.bucket+".>")
	if err != nil {
		return 0, fmt.Errorf("asking the leader of the bucket %s: %w", l.bucket, err)
	}
	if m == nil {
		return 0, nil
	}
	return m.Seq, nil
}

// complete is streams.ErrBehind if a read that came to a revision is not complete.
func (l *bucketLag) complete(revision, floor uint64) error {
	if revision >= floor {
		return nil
	}
	return fmt.Errorf("reading the bucket %s: %w: it ends at revision %d, the leader has %d", l.bucket, streams.ErrBehind, revision, floor)
}

// look asks the leader, beside the caller's work, unless a question is under way.
func (l *bucketLag) look(ctx context.Context, newest uint64) {
	if l.looking {
		return
	}
	l.looking = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
		defer cancel()
		due, _, err := streams.NextDue(ctx, l.js, l.stream(), nil, newest+1)
		l.looks <- bucketLook{newest, due, err}
	}()
}

// judge takes the answer; newest is the newest revision seen now. Its error says
// that the watch stands still.
func (l *bucketLag) judge(b bucketLook, newest uint64) error {
	l.looking = false
	if b.err != nil || b.newest != newest || !l.stall.Observe(newest+1, b.due, time.Now()) {
		return nil
	}
	l.stall = streams.Stall{}
	return fmt.Errorf("following the bucket %s: %w: the watch stands at revision %d, the leader has %d", l.bucket, streams.ErrBehind, newest, b.due)
}

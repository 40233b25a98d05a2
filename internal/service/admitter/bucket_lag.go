package admitter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// leaderTimeout bounds one request to the leader of a bucket.
const leaderTimeout = 3 * time.Second

// leaderLag compares a watch of a bucket with the bucket's leader. A watch runs on any replica;
// one that lags delivers an old state as if it were complete, or stops without an error. The
// goroutine that follows the bucket owns it.
type leaderLag struct {
	js     jetstream.JetStream
	bucket string

	store   string // the bucket's incarnation, as it was when the watch began
	stall   streams.StallDetector
	answers chan leaderAnswer
	asking  bool
}

// leaderAnswer is the bucket's incarnation, the leader's revision (due) and the newest revision seen when it
// was asked.
type leaderAnswer struct {
	store       string
	newest, due uint64
	err         error
}

func newLeaderLag(js jetstream.JetStream, bucket string) *leaderLag {
	return &leaderLag{js: js, bucket: bucket, answers: make(chan leaderAnswer, 1)}
}

func (l *leaderLag) streamName() string { return "KV_" + l.bucket }

// begin notes which incarnation of the bucket is followed from now on.
func (l *leaderLag) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	version, err := streams.VersionOf(ctx, l.js, l.bucket)
	l.store = version.Store
	return err
}

// minRevision is the revision that a complete read of the bucket reaches at least.
func (l *leaderLag) minRevision(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	m, err := streams.LastBySubject(ctx, l.js, l.streamName(), "$KV."+l.bucket+".>")
	if err != nil {
		return 0, fmt.Errorf("asking the leader of the bucket %s: %w", l.bucket, err)
	}
	if m == nil {
		return 0, nil
	}
	return m.Seq, nil
}

// checkComplete returns streams.ErrBehind if a read that ends at revision is not complete.
func (l *leaderLag) checkComplete(revision, floor uint64) error {
	if revision >= floor {
		return nil
	}
	return fmt.Errorf("reading the bucket %s: %w: it ends at revision %d, the leader has %d", l.bucket, streams.ErrBehind, revision, floor)
}

// askLeader asks the leader whether the bucket is still the same, and for a revision after newest, in the
// background, unless a request is under way. What was newer may be gone, by its age or an erasure.
func (l *leaderLag) askLeader(ctx context.Context, newest uint64) {
	if l.asking {
		return
	}
	l.asking = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
		defer cancel()
		version, err := streams.VersionOf(ctx, l.js, l.bucket)
		answer := leaderAnswer{store: version.Store, newest: newest, err: err}
		if err == nil && version.Revision > newest {
			var m *events.LogMessage
			if m, answer.err = streams.NextBySubject(ctx, l.js, l.streamName(), "$KV."+l.bucket+".>", newest+1); m != nil {
				answer.due = m.Seq
			}
		}
		l.answers <- answer
	}()
}

// checkAnswer evaluates an answer; newest is the newest revision seen now. An error means that
// the watch has stalled, or that the bucket is another one or none: a watch would wait for its next
// revision, and a new bucket counts from one again.
func (l *leaderLag) checkAnswer(b leaderAnswer, newest uint64) error {
	l.asking = false
	switch {
	case errors.Is(b.err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("following the bucket %s: %w", l.bucket, b.err)
	case b.err == nil && b.store != l.store:
		return fmt.Errorf("following the bucket %s: %w", l.bucket, streams.ErrRecreated)
	case b.err != nil || b.newest != newest || !l.stall.Observe(newest+1, b.due, time.Now()):
		return nil
	}
	l.stall = streams.StallDetector{}
	return fmt.Errorf("following the bucket %s: %w: the watch stands at revision %d, the leader has %d", l.bucket, streams.ErrBehind, newest, b.due)
}

package streams

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// A request whose answer is lost ends although its context does not: the caller can try again.
func TestALostAnswerEndsTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		within time.Duration
		ask    func(context.Context, jetstream.JetStream) error
	}{
		"the last of a subject": {answerTimeout, func(ctx context.Context, js jetstream.JetStream) error {
			_, err := LastBySubject(ctx, js, "GOV", "gov.>")
			return err
		}},
		"one message": {answerTimeout, func(ctx context.Context, js jetstream.JetStream) error {
			_, err := MessageAt(ctx, js, "GOV", 1)
			return err
		}},
		"a search": {searchTimeout, func(ctx context.Context, js jetstream.JetStream) (last error) {
			for _, err := range EachBySubject(ctx, js, "GOV", "gov.>", 1) {
				last = err
			}
			return last
		}},
		"a deletion": {answerTimeout, func(ctx context.Context, js jetstream.JetStream) error {
			_, err := Erase(ctx, js.Conn(), "GOV", 1)
			return err
		}},
		"a write of a bucket": {answerTimeout, func(ctx context.Context, js jetstream.JetStream) error {
			return KVPutUnless(ctx, js.Conn(), BucketKeys, "k", nil, "retired.k")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nc, err := nats.Connect("nats://192.0.2.1", nats.SetCustomDialer(testkit.DeafNATS{}))
				ok(t, err)
				defer nc.Close()
				js, err := jetstream.New(nc)
				ok(t, err)
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				began := time.Now()
				err = c.ask(ctx, js)
				if took := time.Since(began); !Transient(err) || !errors.Is(err, context.DeadlineExceeded) || took != c.within {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

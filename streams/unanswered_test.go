package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// deafServer takes connections and requests, answers pings, and answers no request.
type deafServer struct{}

func (deafServer) InProcessConn() (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer here.Close()
		_, _ = fmt.Fprint(here, `INFO {"server_id":"deaf","max_payload":1048576,"headers":true,"proto":1}`+"\r\n")
		for lines := bufio.NewScanner(here); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "PING") {
				_, _ = fmt.Fprint(here, "PONG\r\n")
			}
		}
	}()
	return there, nil
}

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
				nc, err := nats.Connect("", nats.InProcessServer(deafServer{}))
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

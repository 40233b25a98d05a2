package admitter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

const (
	// keyPoll is how often the key directory is looked at. SIGHUP looks at once.
	keyPoll = time.Second
	// retiredPoll is how often the bucket is asked whether the key in force was
	// retired by somebody else, in looks at the directory.
	retiredPoll = 30
)

// followKey takes changes of the key directory until ctx ends: whoever rotates
// the key need not restart anybody.
func (s *service) followKey(ctx context.Context, js jetstream.JetStream) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	// What the directory was like before this service read it for the first time
	// nobody knows: the first look always reads it.
	go func() {
		defer close(done)
		defer signal.Stop(hup)
		tick := time.NewTicker(keyPoll)
		defer tick.Stop()
		seen := ""
		for n := 1; ; n++ {
			asked := false
			select {
			case <-ctx.Done():
				return
			case <-hup:
				asked = true
			case <-tick.C:
			}
			now := s.keyFiles()
			if asked || now != seen || n%retiredPoll == 0 {
				if s.pollKey(ctx, js) {
					seen = now
				} else {
					seen = ""
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// followRetired makes this admitter sign with the key directory's new key as soon as
// the keys bucket says that its key is retired, whichever admitter put that there, and
// ends it where there is no other: what it would sign counts no more. Nothing is
// decided in between.
func (s *service) followRetired(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	f := &bucketFollower{s: s, bucket: streams.BucketKeys, apply: func(ctx context.Context, changed map[string]bucketEntry, _ uint64) {
		now := s.signer.Load()
		if now == nil {
			return
		}
		if e, there := changed[keys.RetiredEntry(now.key.ID)]; there && e.value != nil {
			s.progress.unrecorded.Add(1)
			if s.pollKey(ctx, js) && s.signer.Load().key.ID != now.key.ID {
				s.progress.unrecorded.Add(-1)
				return
			}
			s.reportKeyError(fmt.Errorf("%w: %s", errRetired, now.key.ID))
		}
	}}
	return f.start(ctx, nc, js)
}

// pollKey reports whether nothing is left to do.
func (s *service) pollKey(ctx context.Context, js jetstream.JetStream) bool {
	ctx, cancel := context.WithTimeout(ctx, s.flags.Timeout)
	defer cancel()
	err := s.rotateKey(ctx, js)
	s.reportKeyError(err)
	return err == nil
}

// reportKeyError says what is wrong with the keys. A key that was retired is the end
// of this admitter: everything that it signs from now on would be a forgery.
func (s *service) reportKeyError(err error) {
	switch {
	case err == nil:
		s.env.Health.Set("receipt_key", "")
		return
	case errors.Is(err, errRetired):
		select {
		case s.fatal <- err:
		default:
		}
	case errors.Is(err, context.Canceled):
		return
	}
	if said := s.env.Health.Report().Problems["receipt_key"]; !strings.HasSuffix(said, err.Error()) {
		s.env.Log.Error().Err(err).Msg("the key directory cannot be followed; the key in force goes on")
	}
	s.env.Health.Set("receipt_key", "the key directory cannot be followed, the key in force goes on: "+err.Error())
}

// keyFiles tells one state of the key directory from another, without reading
// any secret.
func (s *service) keyFiles() string {
	entries, err := os.ReadDir(s.flags.Keys)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !isReceiptKeyFile(e.Name()) {
			continue
		}
		fmt.Fprintf(&b, "%s %d %d\n", e.Name(), info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}

// isReceiptKeyFile reports whether a file of a key directory is about receipt keys.
func isReceiptKeyFile(name string) bool {
	return slices.Contains([]string{keys.ReceiptFile, keys.ReceiptRecordFile}, name) ||
		strings.HasPrefix(name, "receipt-") || strings.HasPrefix(name, "retired-")
}

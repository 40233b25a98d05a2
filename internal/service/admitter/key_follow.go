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
	// keyPoll is how often the key directory is checked. SIGHUP triggers a check at once.
	keyPoll = time.Second
	// retiredPoll is the number of directory checks after which the bucket is asked whether
	// another process retired the current key.
	retiredPoll = 30
)

// followKey applies changes of the key directory until ctx ends, so that a key rotation needs no
// restart.
func (s *service) followKey(ctx context.Context, js jetstream.JetStream) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	// The directory may have changed before this service first read it: the first check always
	// reads it.
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

// followRetired switches to the key directory's new key as soon as the keys bucket says that the
// current key is retired, whichever admitter wrote that. Without a new key it ends this admitter,
// since its signatures no longer count. No decision is recorded in between.
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

// pollKey applies the key directory and reports whether that succeeded.
func (s *service) pollKey(ctx context.Context, js jetstream.JetStream) bool {
	ctx, cancel := context.WithTimeout(ctx, s.flags.Timeout)
	defer cancel()
	err := s.rotateKey(ctx, js)
	s.reportKeyError(err)
	return err == nil
}

// reportKeyError reports a key error in log and health. A retired key ends this admitter:
// everything that it signs from then on would count as forged.
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

// keyFiles returns a fingerprint of the key directory's state, without reading any secret.
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

// isReceiptKeyFile reports whether a file of a key directory concerns receipt keys.
func isReceiptKeyFile(name string) bool {
	return slices.Contains([]string{keys.ReceiptFile, keys.ReceiptRecordFile}, name) ||
		strings.HasPrefix(name, "receipt-") || strings.HasPrefix(name, "retired-")
}

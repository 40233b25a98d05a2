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

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/keys"
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
func (k *receiptKeys) followKey(ctx context.Context, js jetstream.JetStream) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	// The directory may have changed before this service first read it: the first check always
	// reads it.
	go func() {
		defer close(done)
		defer signal.Stop(hup)
		seen := ""
		for n := 1; ; n++ {
			asked := false
			select {
			case <-ctx.Done():
				return
			case <-hup:
				asked = true
			case <-time.After(retry.UntilTick(keyPoll)):
			}
			now := k.keyFiles()
			if asked || now != seen || n%retiredPoll == 0 {
				if k.pollKey(ctx, js) {
					seen = now
				} else {
					seen = ""
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// applyRetired returns the function that follows the keys bucket. It switches to the key directory's
// new key as soon as the bucket says that the current key is retired, whichever admitter wrote
// that. Without a new key it ends this admitter, since its signatures no longer count. No decision
// is recorded in between.
func (k *receiptKeys) applyRetired(js jetstream.JetStream) func(ctx context.Context, changed map[string]bucketEntry, revision uint64) {
	return func(ctx context.Context, changed map[string]bucketEntry, _ uint64) {
		now := k.signer.Load()
		if now == nil {
			return
		}
		if e, there := changed[keys.RetiredEntry(now.key.ID)]; there && e.value != nil {
			k.progress.suspendRecords()
			if k.pollKey(ctx, js) && k.signer.Load().key.ID != now.key.ID {
				k.progress.resumeRecords()
				return
			}
			k.reportKeyError(fmt.Errorf("%w: %s", errRetired, now.key.ID))
		}
	}
}

// pollKey applies the key directory and reports whether that succeeded.
func (k *receiptKeys) pollKey(ctx context.Context, js jetstream.JetStream) bool {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	err := k.rotateKey(ctx, js)
	k.reportKeyError(err)
	return err == nil
}

// reportKeyError reports a key error in log and health. A retired key ends this admitter:
// everything that it signs from then on would count as forged.
func (k *receiptKeys) reportKeyError(err error) {
	switch {
	case err == nil:
		k.env.Health.Set("receipt_key", "")
		return
	case errors.Is(err, errRetired):
		select {
		case k.fatal <- err:
		default:
		}
	case errors.Is(err, context.Canceled):
		return
	}
	if said := k.env.Health.Report().Problems["receipt_key"]; !strings.HasSuffix(said, err.Error()) {
		k.env.Log.Error().Err(err).Msg("the key directory cannot be followed; the key in force goes on")
	}
	k.env.Health.Set("receipt_key", "the key directory cannot be followed, the key in force goes on: "+err.Error())
}

// keyFiles returns a fingerprint of the key directory's state, without reading any secret.
func (k *receiptKeys) keyFiles() string {
	entries, err := os.ReadDir(k.dir)
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

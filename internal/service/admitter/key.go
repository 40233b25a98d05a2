package admitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

// signer is a signing key. It is in the log before it signs anything.
type signer struct {
	key    signing.PrivateKey
	record string // JSON record of the public key, signed by the checkpoint key
}

// receiptKeys holds the key that signs and applies changes of the key directory.
type receiptKeys struct {
	dir, stream string
	space       subject.Space
	timeout     time.Duration
	env         daemon.Env
	progress    *changeProgress

	signer  atomic.Pointer[signer]
	mu      sync.Mutex           // held during a change of keys
	retired map[string]time.Time // retirements that are in the log, and the log's incarnation
	fatal   chan error           // receives the reason why this admitter must stop
}

func newReceiptKeys(f Flags, env daemon.Env, progress *changeProgress) *receiptKeys {
	return &receiptKeys{dir: f.Keys, stream: f.Stream, space: f.Space(), timeout: f.Timeout, env: env, progress: progress,
		retired: map[string]time.Time{}, fatal: make(chan error, 1)}
}

// current returns the key that signs; nil before publishKey.
func (k *receiptKeys) current() *signer { return k.signer.Load() }

// fatalError receives the reason why this admitter must stop.
func (k *receiptKeys) fatalError() <-chan error { return k.fatal }

// errRetired reports that this admitter's key was retired. Its signatures no longer count, so the
// admitter must not decide.
var errRetired = errors.New("the receipt key of this admitter is retired; give it another one (countersign keys rotate)")

// readSigner reads the key in the key directory, and its record.
func (k *receiptKeys) readSigner() (*signer, error) {
	key, err := keys.Receipt(k.dir)
	if err != nil {
		return nil, err
	}
	public, err := keys.RecordOf(k.dir, key.ID)
	if err != nil {
		return nil, err
	}
	record, err := events.Encode(public)
	if err != nil {
		return nil, err
	}
	return &signer{key: key, record: string(record)}, nil
}

// publishKey makes sure that the signing key is in the log before its first signature is, and in
// the keys bucket. It runs at the start and whenever the server may be a different one.
func (k *receiptKeys) publishKey(ctx context.Context, js jetstream.JetStream) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, err := k.readSigner()
	if now := k.signer.Load(); err != nil && now != nil {
		next = now // the directory is being changed; keep the current key
	} else if err != nil {
		return err
	}
	if err := k.publishSigner(ctx, js, next); err != nil {
		return err
	}
	return k.publishRetirements(ctx, js)
}

// rotateKey applies changes of the key directory: a new key is published first and then signs.
// The previous key stays valid for what it has signed.
func (k *receiptKeys) rotateKey(ctx context.Context, js jetstream.JetStream) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, err := k.readSigner()
	if err != nil {
		return err
	}
	if now := k.signer.Load(); now == nil || now.key.ID != next.key.ID {
		if err := k.publishSigner(ctx, js, next); err != nil {
			return err
		}
		k.env.Log.Info().Str("kid", next.key.ID).Msg("signing with a new receipt key")
	}
	return k.publishRetirements(ctx, js)
}

// publishSigner puts a key into the log and the bucket, and then uses it. It writes to the log
// whatever the bucket holds, since the log may have been created anew. A second record of the
// same key does no harm; a missing one would make every decision look forged.
func (k *receiptKeys) publishSigner(ctx context.Context, js jetstream.JetStream, next *signer) error {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketKeys)
	if err != nil {
		return err
	}
	if err := checkNotRetired(ctx, kv, next.key.ID); err != nil {
		return err
	}
	// The read above may come from a server that has not seen a retirement yet; a quorum decides
	// on a write.
	err = streams.KVPutUnless(ctx, js.Conn(), streams.BucketKeys, next.key.ID, []byte(next.record), keys.RetiredEntry(next.key.ID))
	switch {
	case errors.Is(err, streams.ErrFenced):
		return fmt.Errorf("%w: %s", errRetired, next.key.ID)
	case err != nil:
		return err
	}
	if err := k.logKey(ctx, js, events.ControlKey, next.key.ID, []byte(next.record)); err != nil {
		return fmt.Errorf("recording the receipt key: %w", err)
	}
	old := ""
	if now := k.signer.Load(); now != nil {
		old = now.key.ID
	}
	k.signer.Store(next)
	if old != next.key.ID {
		k.progress.noteSigner(old, next.key.ID)
	}
	return nil
}

// checkNotRetired returns errRetired if the bucket holds the retirement of a key.
func checkNotRetired(ctx context.Context, kv jetstream.KeyValue, kid string) error {
	_, err := kv.Get(ctx, keys.RetiredEntry(kid))
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s", errRetired, kid)
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil
	}
	return fmt.Errorf("reading the keys bucket: %w", err)
}

// publishRetirements puts the retirements of the key directory into the log, once for every
// incarnation of the log, and into the bucket. That of an earlier key of this admitter waits for the
// decisions that it still signs: what is on the log behind a retirement counts as forged.
func (k *receiptKeys) publishRetirements(ctx context.Context, js jetstream.JetStream) error {
	list, err := keys.Retirements(k.dir)
	if err != nil {
		return err
	}
	kv, err := streams.OpenBucket(ctx, js, streams.BucketKeys)
	if err != nil {
		return err
	}
	state, err := streams.StreamState(ctx, js, k.stream)
	if err != nil {
		return err
	}
	for _, r := range list {
		if k.retired[r.KeyID].Equal(state.Created) {
			continue
		}
		record, err := events.Encode(r)
		if err != nil {
			return err
		}
		if now := k.signer.Load(); now == nil || now.key.ID != r.KeyID {
			if err := k.progress.awaitUnused(ctx, r.KeyID); err != nil {
				return err
			}
		}
		if err := k.logKey(ctx, js, events.ControlKeyRetired, r.KeyID, record); err != nil {
			return fmt.Errorf("recording that a key is retired: %w", err)
		}
		if err := putKey(ctx, kv, keys.RetiredEntry(r.KeyID), record); err != nil {
			return err
		}
		k.retired[r.KeyID] = state.Created
		k.env.Log.Info().Str("kid", r.KeyID).Msg("a receipt key is retired")
	}
	return k.checkSignerValid(ctx, kv)
}

// checkSignerValid returns errRetired if the current key is retired, by this or any other
// admitter.
func (k *receiptKeys) checkSignerValid(ctx context.Context, kv jetstream.KeyValue) error {
	if now := k.signer.Load(); now != nil {
		return checkNotRetired(ctx, kv, now.key.ID)
	}
	return nil
}

func putKey(ctx context.Context, kv jetstream.KeyValue, key string, record []byte) error {
	e, err := kv.Get(ctx, key)
	if err == nil && bytes.Equal(e.Value(), record) {
		return nil
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("reading the keys bucket: %w", err)
	}
	if _, err := kv.Put(ctx, key, record); err != nil {
		return fmt.Errorf("writing into the keys bucket: %w", err)
	}
	return nil
}

// logKey writes a record about a key unless it is the newest record of its kind in the log.
func (k *receiptKeys) logKey(ctx context.Context, js jetstream.JetStream, kind, id string, record []byte) error {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	last, err := streams.LastBySubject(ctx, js, k.stream, k.space.Control(k.stream, kind))
	if err != nil {
		return err
	}
	if last != nil && bytes.Equal(last.Body, record) {
		return nil
	}
	return streams.StoreLinked(ctx, js, k.stream, controlMessage(k.space, k.stream, kind, kind+"-"+id, time.Now(), record))
}

// signBatch signs records that are appended together with as few signatures as possible. One
// signature costs as much as the rest of a decision.
func (k *receiptKeys) signBatch(msgs []streams.Msg) error {
	key := k.signer.Load().key
	for part := range slices.Chunk(msgs, signing.MaxBatch) {
		records := make([][]byte, len(part))
		for i, m := range part {
			records[i] = m.Body
		}
		signatures, err := key.SignRecords(records)
		if err != nil {
			return err
		}
		for i, m := range part {
			m.Header[events.HeaderSignature] = []string{signatures[i]}
		}
	}
	return nil
}

const (
	// keyPoll is how often the key directory is checked. SIGHUP triggers a check at once.
	keyPoll = time.Second
	// checksPerRetiredPoll is the number of directory checks after which the bucket is asked whether
	// another process retired the current key.
	checksPerRetiredPoll = 30
)

// followKey applies changes of the key directory until ctx ends, so that a key rotation needs no
// restart.
func (k *receiptKeys) followKey(ctx context.Context, js jetstream.JetStream) (stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	// The directory may have changed before this service first read it: the first check always
	// reads it.
	return daemon.Background(ctx, func(ctx context.Context) {
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
			if asked || now != seen || n%checksPerRetiredPoll == 0 {
				if k.pollKey(ctx, js) {
					seen = now
				} else {
					seen = ""
				}
			}
		}
	})
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

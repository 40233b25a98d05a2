package admitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
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
	committer   *streams.Committer // of the log; set before a key is published

	signer  atomic.Pointer[signer]
	mu      sync.Mutex           // held during a change of keys
	retired map[string]time.Time // retirements that are in the log, and the log's incarnation
	fatal   chan error           // receives the reason why this admitter must stop
}

func newReceiptKeys(f Flags, env daemon.Env, progress *changeProgress) *receiptKeys {
	return &receiptKeys{dir: f.Keys, stream: f.Stream, space: f.Space(), timeout: f.Timeout, env: env, progress: progress,
		retired: map[string]time.Time{}, fatal: make(chan error, 1)}
}

// useCommitter sets the way to the log. It is called before publishKey, and not again.
func (k *receiptKeys) useCommitter(c *streams.Committer) { k.committer = c }

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
// incarnation of the log, and into the bucket.
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
	subj := k.space.Control(k.stream, kind)
	last, err := streams.LastBySubject(ctx, js, k.stream, subj)
	if err != nil {
		return err
	}
	if last != nil && bytes.Equal(last.Body, record) {
		return nil
	}
	_, err = k.committer.Append(ctx, streams.Msg{
		Subject: subj,
		Header: cloudevents.Binary(cloudevents.Attributes{
			ID: kind + "-" + id, Source: "/countersign/" + k.stream + "/admitter", Type: events.TypeControl, Subject: kind, Time: time.Now(),
		}),
		Body: record,
	})
	return err
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

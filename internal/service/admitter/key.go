package admitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

// signer is a key that signs. It is in the log before it signs anything.
type signer struct {
	key    signing.PrivateKey
	record string // its public half with the checkpoint key's word for it, JSON
}

// errRetired says that the key of this admitter was taken back: what it signs
// counts no more, so it must not decide.
var errRetired = errors.New("the receipt key of this admitter is retired; give it another one (countersign keys rotate)")

// readSigner reads the key in the key directory, and its record.
func (s *service) readSigner() (*signer, error) {
	key, err := keys.Receipt(s.flags.Keys)
	if err != nil {
		return nil, err
	}
	k, err := keys.RecordOf(s.flags.Keys, key.ID)
	if err != nil {
		return nil, err
	}
	record, err := events.Encode(k)
	if err != nil {
		return nil, err
	}
	return &signer{key: key, record: string(record)}, nil
}

// publishKey makes sure that the key this admitter signs with is in the log
// before its first signature is, and in the keys bucket, at the start and
// whenever the server may be another one.
func (s *service) publishKey(ctx context.Context, js jetstream.JetStream) error {
	s.keyMu.Lock()
	defer s.keyMu.Unlock()
	next, err := s.readSigner()
	if now := s.signer.Load(); err != nil && now != nil {
		next = now // the directory is being changed; the key in force goes on
	} else if err != nil {
		return err
	}
	if err := s.publishSigner(ctx, js, next); err != nil {
		return err
	}
	return s.publishRetirements(ctx, js)
}

// rotateKey takes what is new in the key directory: another key is published
// first, then signs. The one before stays valid for what it has signed.
func (s *service) rotateKey(ctx context.Context, js jetstream.JetStream) error {
	s.keyMu.Lock()
	defer s.keyMu.Unlock()
	next, err := s.readSigner()
	if err != nil {
		return err
	}
	if now := s.signer.Load(); now == nil || now.key.ID != next.key.ID {
		if err := s.publishSigner(ctx, js, next); err != nil {
			return err
		}
		s.env.Log.Info().Str("kid", next.key.ID).Msg("signing with a new receipt key")
	}
	return s.publishRetirements(ctx, js)
}

// publishSigner puts a key into the log and the bucket and then in force. What the
// bucket holds says nothing about the log, which may have been created anew; and
// a second record of the same key does no harm, while a missing one would turn
// every decision into a forgery.
func (s *service) publishSigner(ctx context.Context, js jetstream.JetStream, next *signer) error {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketKeys)
	if err != nil {
		return err
	}
	if err := checkNotRetired(ctx, kv, next.key.ID); err != nil {
		return err
	}
	// The read above may have come from a server that has not heard of a retirement;
	// a write is decided by a quorum.
	err = streams.KVPutUnless(ctx, js.Conn(), streams.BucketKeys, next.key.ID, []byte(next.record), keys.RetiredEntry(next.key.ID))
	switch {
	case errors.Is(err, streams.ErrFenced):
		return fmt.Errorf("%w: %s", errRetired, next.key.ID)
	case err != nil:
		return err
	}
	if err := s.logKey(ctx, js, events.ControlKey, next.key.ID, []byte(next.record)); err != nil {
		return fmt.Errorf("recording the receipt key: %w", err)
	}
	old := ""
	if now := s.signer.Load(); now != nil {
		old = now.key.ID
	}
	s.signer.Store(next)
	if old != next.key.ID {
		s.progress.noteSigner(old, next.key.ID)
	}
	return nil
}

// checkNotRetired reads the bucket's word on a key.
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

// publishRetirements puts what the key directory says of retired keys into the
// log, once for every incarnation of it, and into the bucket.
func (s *service) publishRetirements(ctx context.Context, js jetstream.JetStream) error {
	list, err := keys.Retirements(s.flags.Keys)
	if err != nil {
		return err
	}
	kv, err := streams.OpenBucket(ctx, js, streams.BucketKeys)
	if err != nil {
		return err
	}
	state, err := streams.StreamState(ctx, js, s.flags.Stream)
	if err != nil {
		return err
	}
	for _, k := range list {
		if s.retired[k.KeyID].Equal(state.Created) {
			continue
		}
		record, err := events.Encode(k)
		if err != nil {
			return err
		}
		if err := s.logKey(ctx, js, events.ControlKeyRetired, k.KeyID, record); err != nil {
			return fmt.Errorf("recording that a key is retired: %w", err)
		}
		if err := putKey(ctx, kv, keys.RetiredEntry(k.KeyID), record); err != nil {
			return err
		}
		s.retired[k.KeyID] = state.Created
		s.env.Log.Info().Str("kid", k.KeyID).Msg("a receipt key is retired")
	}
	return s.checkSignerValid(ctx, kv)
}

// checkSignerValid is errRetired if the key in force was retired, by whomever.
func (s *service) checkSignerValid(ctx context.Context, kv jetstream.KeyValue) error {
	if now := s.signer.Load(); now != nil {
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

// logKey writes a record about a key unless it is the newest one of its kind in
// the log.
func (s *service) logKey(ctx context.Context, js jetstream.JetStream, kind, id string, record []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.flags.Timeout)
	defer cancel()
	subj := s.space.Control(s.flags.Stream, kind)
	last, err := streams.LastBySubject(ctx, js, s.flags.Stream, subj)
	if err != nil {
		return err
	}
	if last != nil && bytes.Equal(last.Body, record) {
		return nil
	}
	_, err = s.committer.Append(ctx, streams.Msg{
		Subject: subj,
		Header: cloudevents.Binary(cloudevents.Attributes{
			ID: kind + "-" + id, Source: "/countersign/" + s.flags.Stream + "/admitter", Type: events.TypeControl, Subject: kind, Time: time.Now(),
		}),
		Body: record,
	})
	return err
}

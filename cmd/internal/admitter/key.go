package admitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/cmd/internal/keys"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/streams"
)

// publishKey makes sure that the key this admitter signs with is in the log
// before its first signature is, and in the keys bucket. What the bucket holds
// says nothing about the log, which may have been created anew; and a second
// record of the same key does no harm, while a missing one would turn every
// decision into a forgery.
func (s *service) publishKey(ctx context.Context, js jetstream.JetStream) error {
	k, err := keys.ReceiptRecord(s.flags.Keys)
	if err != nil {
		return err
	}
	if k.KeyID != s.key.ID {
		return fmt.Errorf("%s in %s belongs to another receipt key: run `countersign provision` where the checkpoint key is, and copy the file again",
			keys.ReceiptRecordFile, s.flags.Keys)
	}
	record, err := events.Encode(k)
	if err != nil {
		return err
	}
	s.keyRecord = string(record)
	kv, err := js.KeyValue(ctx, streams.BucketKeys)
	if err != nil {
		return fmt.Errorf("opening the keys bucket (run `countersign provision` first): %w", err)
	}
	if err := s.logKey(ctx, js, k.KeyID, record); err != nil {
		return fmt.Errorf("recording the receipt key: %w", err)
	}
	e, err := kv.Get(ctx, k.KeyID)
	if err == nil && bytes.Equal(e.Value(), record) {
		return nil
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("reading the keys bucket: %w", err)
	}
	if _, err := kv.Put(ctx, k.KeyID, record); err != nil {
		return fmt.Errorf("publishing the receipt key: %w", err)
	}
	return nil
}

// logKey writes the record of the key unless it is the newest one in the log.
func (s *service) logKey(ctx context.Context, js jetstream.JetStream, id string, record []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.flags.Timeout)
	defer cancel()
	subj := s.space.Control(s.flags.Stream, events.ControlKey)
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
			ID: "key-" + id, Source: "/countersign/" + s.flags.Stream + "/admitter", Type: events.TypeControl,
			Subject: events.ControlKey, Time: time.Now(),
		}),
		Body: record,
	})
	return err
}

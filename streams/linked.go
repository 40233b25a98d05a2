package streams

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/retry"
)

// StoreLinked stores messages one by one, each on the condition that a certain message is the last of its
// subject. The server checks the condition and keeps it in the message's headers, so that EachLinked can go
// from message to message. Concurrent writers of a subject wait for each other. Errors are those of
// AppendFenced without ErrFenced, or of a read; the messages before the one that failed are stored.
func StoreLinked(ctx context.Context, js jetstream.JetStream, stream string, msgs ...Msg) error {
	for _, m := range msgs {
		if err := storeLinked(ctx, js, stream, m); err != nil {
			return err
		}
	}
	return nil
}

func storeLinked(ctx context.Context, js jetstream.JetStream, stream string, m Msg) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	pauses := retry.New(10*time.Millisecond, time.Second)
	for {
		last, err := LastBySubject(ctx, js, stream, m.Subject)
		if err != nil {
			return err
		}
		fence := Fence{Subject: m.Subject}
		if last != nil {
			fence.ExpectedLastSeq = last.Seq
		}
		if _, err = AppendFenced(ctx, js.Conn(), stream, []Msg{m}, fence); !errors.Is(err, ErrFenced) {
			return err
		}
		if err := pauses.Wait(ctx); err != nil {
			return fmt.Errorf("%w: other writers of %s came first: %w", ErrRefused, m.Subject, err)
		}
	}
}

// EachLinked yields the messages of a subject (no wildcards) from a sequence on, in order, up to the last one
// that the stream has when it begins. It is for messages of StoreLinked. An error is the last thing that it
// yields; a message that another one names and that is gone is one.
//
// EachBySubject makes the server search all messages between two of the subject, and the server stores
// nothing while it searches. EachLinked reads single messages.
func EachLinked(ctx context.Context, js jetstream.JetStream, stream, subj string, from uint64) iter.Seq2[*events.LogMessage, error] {
	return func(yield func(*events.LogMessage, error) bool) {
		seqs, err := linkedSeqs(ctx, js, stream, subj, from)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, seq := range seqs {
			m, err := linkedAt(ctx, js, stream, subj, seq)
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// linkedSeqs follows the links back from the last message. It keeps the sequences alone: messages are large.
func linkedSeqs(ctx context.Context, js jetstream.JetStream, stream, subj string, from uint64) (seqs []uint64, err error) {
	m, err := LastBySubject(ctx, js, stream, subj)
	for err == nil && m != nil && m.Seq >= from {
		seqs = append(seqs, m.Seq)
		before, linked := linkOf(m)
		if !linked {
			return searchBefore(ctx, js, stream, subj, from, seqs)
		}
		if before == 0 || before < from {
			break
		}
		m, err = linkedAt(ctx, js, stream, subj, before)
	}
	slices.Reverse(seqs)
	return seqs, err
}

// linkOf returns the sequence of the message before on the same subject (0: there is none). A message that was
// stored without this condition, or with one on another subject, has no link.
func linkOf(m *events.LogMessage) (before uint64, linked bool) {
	if m.HeaderValue(headerExpectOn) != "" {
		return 0, false
	}
	before, err := strconv.ParseUint(m.HeaderValue(headerExpectLast), 10, 64)
	return before, err == nil && before < m.Seq
}

// searchBefore completes sequences, newest first, of which the last one has no link, with a search. It returns them in
// order.
func searchBefore(ctx context.Context, js jetstream.JetStream, stream, subj string, from uint64, newer []uint64) (seqs []uint64, err error) {
	slices.Reverse(newer)
	for m, err := range EachBySubject(ctx, js, stream, subj, from) {
		if err != nil {
			return nil, err
		}
		if m.Seq >= newer[0] {
			break
		}
		seqs = append(seqs, m.Seq)
	}
	return append(seqs, newer...), nil
}

// linkedAt reads a message that is known to have a subject.
func linkedAt(ctx context.Context, js jetstream.JetStream, stream, subj string, seq uint64) (*events.LogMessage, error) {
	m, err := MessageAt(ctx, js, stream, seq)
	if err == nil && (m == nil || m.Subject != subj) {
		return nil, fmt.Errorf("stream %s has lost message %d of %s; run countersign doctor", stream, seq, subj)
	}
	return m, err
}

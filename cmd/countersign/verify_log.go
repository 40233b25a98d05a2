package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/streams"
)

// openedLog is the log that the evidence is of, as far as an operator may read
// it; nil when there is no server to ask.
type openedLog struct {
	js        jetstream.JetStream
	stream    string
	shard     string // the incarnation that exists now
	last      uint64 // how far it went when it was connected to
	published []evidence.Published
	trusted   []note.Verifier // the witnesses whose signatures the operators take
	hangUp    func()
}

// connectLog connects to the log and reads the newest checkpoint off NATS: whoever
// can change the database cannot take it back.
func connectLog(ctx context.Context, t *target.Target) (*openedLog, error) {
	nc, err := t.Connect(ctx, target.Operator)
	if err != nil {
		return nil, err
	}
	l := &openedLog{stream: t.Stream, hangUp: nc.Close}
	if l.js, err = jetstream.New(nc); err == nil {
		err = l.read(ctx, subject.Space{Prefix: t.Prefix}.Checkpoints(t.Stream))
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return l, nil
}

func (l *openedLog) read(ctx context.Context, checkpoints string) error {
	m, err := streams.LastBySubject(ctx, l.js, streams.StreamCheckpoints, checkpoints)
	if err != nil {
		return fmt.Errorf("reading the published checkpoint: %w", err)
	}
	if m != nil {
		l.published = []evidence.Published{{Source: fmt.Sprintf("stream %s, sequence %d", streams.StreamCheckpoints, m.Seq), Text: string(m.Body)}}
	}
	st, err := streams.StreamState(ctx, l.js, l.stream)
	if err != nil {
		return err
	}
	l.shard, l.last = streams.EpochName(l.stream, st.Created), st.LastSeq
	trusted, err := witnessbucket.TrustedWitnesses(ctx, l.js)
	l.trusted = witnessbucket.Verifiers(trusted)
	return err
}

// cosigners are the witnesses that the system itself names. Nothing rests on them:
// who asks for signatures gives the keys (--witness).
func (l *openedLog) cosigners() []note.Verifier {
	if l == nil {
		return nil
	}
	return l.trusted
}

// history gives all checkpoints that were published.
func (l *openedLog) history(ctx context.Context) (list []evidence.Published, err error) {
	err = streams.EachMessage(ctx, l.js, streams.StreamCheckpoints, func(m *events.LogMessage) error {
		list = append(list, evidence.Published{Source: fmt.Sprintf("stream %s, sequence %d", streams.StreamCheckpoints, m.Seq), Text: string(m.Body)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the published checkpoints: %w", err)
	}
	return list, nil
}

func (l *openedLog) close() {
	if l != nil {
		l.hangUp()
	}
}

// of reports whether the log of a shard can be asked.
func (l *openedLog) of(shard string) bool { return l != nil && l.shard == shard }

func (l *openedLog) message(ctx context.Context, seq uint64) (*events.LogMessage, error) {
	return streams.MessageAt(ctx, l.js, l.stream, seq)
}

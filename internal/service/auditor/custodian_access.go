package auditor

import (
	"context"
	"iter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/streams"
)

// custodyAccess is what each part of the custodian works with. No part changes it. Its connection is the custodian's.
type custodyAccess struct {
	shardAccess
	log     *erasures.Log // the erasure records in the log
	name    string        // of this auditor, in its records
	builder *build.Builder
	keys    *sessionSecrets // their copies in this auditor's memory
}

// evidenceFor is the data from which a tenant's erasures are planned.
func (c custodyAccess) evidenceFor(tenant string) erasureplan.Evidence {
	return erasureplan.Evidence{DB: c.db, Shard: c.shard, Tenant: tenant, Space: c.space,
		Read: func(ctx context.Context, seq uint64) (*events.LogMessage, error) {
			return streams.MessageAt(ctx, c.js, c.stream, seq)
		},
		Find: func(ctx context.Context, subj string) iter.Seq2[*events.LogMessage, error] {
			return streams.EachBySubject(ctx, c.js, c.stream, subj, 1)
		},
		NamesOf: func(m events.LogMessage) ([]events.SessionID, error) { // a record of before has the name that was no credential then
			masked, err := c.builder.ChainSession(m, c.keys)
			return []events.SessionID{masked, c.builder.LogSession(m)}, err
		},
		Erased: c.log.Covers,
	}
}

// controlMessage makes the log message of a control record.
func (c custodyAccess) controlMessage(kind, id string, record any) (streams.Msg, error) {
	body, err := events.Encode(record)
	return streams.Msg{Subject: c.space.Control(c.stream, kind), Body: body, Header: binaryHeader(c.stream, id)}, err
}

// messageEraser deletes single messages from streams.
type messageEraser struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func (e *messageEraser) eraseMessage(ctx context.Context, stream string, seq uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, custodianWait)
	defer cancel()
	return streams.Erase(ctx, e.nc, stream, seq)
}

// eraseSubject deletes the messages of a subject for which choose returns true.
func (e *messageEraser) eraseSubject(ctx context.Context, stream, subj string, choose func(events.LogMessage) bool) (n int, err error) {
	for m, err := range streams.EachBySubject(ctx, e.js, stream, subj, 1) {
		if err != nil {
			return n, err
		}
		if !choose(*m) {
			continue
		}
		gone, err := e.eraseMessage(ctx, stream, m.Seq)
		if err != nil {
			return n, err
		}
		if gone {
			n++
		}
	}
	return n, nil
}

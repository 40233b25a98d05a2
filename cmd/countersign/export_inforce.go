package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// texts finds what decided: policies in the evidence of the log, and what is too
// large for that, and mandates, in the buckets. It is an inforce.Source.
type texts struct {
	ctx    context.Context
	l      evidencereader.Reader
	t      *target.Target
	shard  string
	nc     *nats.Conn
	js     jetstream.JetStream
	absent string // why there are no buckets to ask
}

func newTexts(ctx context.Context, l evidencereader.Reader, t *target.Target, shard string) *texts {
	return &texts{ctx: ctx, l: l, t: t, shard: shard}
}

func (x *texts) close() {
	if x.nc != nil {
		x.nc.Close()
	}
}

// Changes reads the control records of the shard. What is no such record is passed
// over: verification of the log says so.
func (x *texts) Changes(last uint64, yield func(inforce.Change) error) error {
	return x.l.DB.ScanSubject(x.ctx, x.shard, x.l.Space.Control(x.l.Stream, events.ControlPolicy), func(r storage.EvidenceRow) error {
		rec, err := evidence.ParseRecord([]byte(r.Record))
		if err != nil || r.Seq > last {
			return nil
		}
		c, err := events.DecodeRecord[events.PolicyChange](rec.Body)
		if err != nil {
			return nil
		}
		return yield(inforce.Change{Seq: r.Seq, At: rec.BrokerTime, Change: c})
	})
}

// open connects to the server that has the buckets, once.
func (x *texts) open() error {
	if x.js != nil || x.absent != "" {
		return nil
	}
	var err error
	x.nc, err = x.t.Connect(x.ctx, target.Operator)
	if errors.Is(err, target.ErrNoServer) {
		x.absent = "the export was made without the server that has the text"
		return nil
	}
	if err != nil {
		return err
	}
	x.js, err = jetstream.New(x.nc)
	return err
}

// Policies reads a set that was too large for the log's record.
func (x *texts) Policies(revision uint64) ([]events.PolicyDocument, string, error) {
	if err := x.open(); err != nil || x.absent != "" {
		return nil, x.absent, err
	}
	m, err := streams.MessageAt(x.ctx, x.js, "KV_"+streams.BucketPolicies, revision)
	if err != nil {
		return nil, "", fmt.Errorf("reading revision %d of the policies: %w", revision, err)
	}
	if m == nil {
		return nil, "the text is in neither log nor bucket any more", nil
	}
	s, err := events.DecodePolicySet(m.Body)
	if err != nil {
		return nil, "what the bucket has at this revision is not a set of policies", nil
	}
	return s.Documents, "", nil
}

// Mandate reads every document that the bucket still has under an id.
func (x *texts) Mandate(id string) ([]string, string, error) {
	if !mandate.ValidID(id) {
		return nil, "this is not the id of a mandate", nil
	}
	if err := x.open(); err != nil || x.absent != "" {
		return nil, x.absent, err
	}
	list, err := streams.KVHistory(x.ctx, x.js, streams.BucketMandates, mandate.Key(x.t.Tenant, id))
	if err != nil {
		return nil, "", fmt.Errorf("reading mandate %s: %w", id, err)
	}
	var docs []string
	for _, e := range list {
		if s, err := mandate.DecodeStored(e.Value); err == nil {
			docs = append(docs, s.Mandate)
		}
	}
	if len(docs) == 0 {
		return nil, "the bucket has no text under this id any more", nil
	}
	return docs, "", nil
}

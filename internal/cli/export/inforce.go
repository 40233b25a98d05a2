package export

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// policySource finds the documents that decisions used: policies in the evidence of the log; mandates,
// and policies that are too large for a record, in the buckets. It implements inforce.Source.
type policySource struct {
	ctx    context.Context
	l      evidencereader.Reader
	t      *target.Target
	shard  string
	nc     *nats.Conn
	js     jetstream.JetStream
	absent string // why there are no buckets
}

func newPolicySource(ctx context.Context, l evidencereader.Reader, t *target.Target, shard string) *policySource {
	return &policySource{ctx: ctx, l: l, t: t, shard: shard}
}

func (src *policySource) close() {
	if src.nc != nil {
		src.nc.Close()
	}
}

// Changes reads the control records of the shard. Other records are skipped; verification of the
// log reports them.
func (src *policySource) Changes(last uint64, yield func(inforce.Change) error) error {
	return src.l.DB.ScanSubject(src.ctx, src.shard, src.l.Space.Control(src.l.Stream, events.ControlPolicy), func(r storage.EvidenceRow) error {
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

// open connects, once, to the server that has the buckets.
func (src *policySource) open() error {
	if src.js != nil || src.absent != "" {
		return nil
	}
	var err error
	src.nc, err = src.t.Connect(src.ctx, target.Operator)
	if errors.Is(err, target.ErrNoServer) {
		src.absent = "the export was made without the server that has the text"
		return nil
	}
	if err != nil {
		return err
	}
	src.js, err = jetstream.New(src.nc)
	return err
}

// Policies reads a set that was too large for the log's record.
func (src *policySource) Policies(revision uint64) ([]events.PolicyDocument, string, error) {
	if err := src.open(); err != nil || src.absent != "" {
		return nil, src.absent, err
	}
	m, err := streams.MessageAt(src.ctx, src.js, "KV_"+streams.BucketPolicies, revision)
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
func (src *policySource) Mandate(id string) ([]string, string, error) {
	if !mandate.ValidID(id) {
		return nil, "this is not the id of a mandate", nil
	}
	if err := src.open(); err != nil || src.absent != "" {
		return nil, src.absent, err
	}
	list, err := streams.KVHistory(src.ctx, src.js, streams.BucketMandates, mandate.Key(src.t.Tenant, id))
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

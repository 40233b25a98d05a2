package auditor

import (
	"context"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/write"
)

// A record can be many times as long as its message: each redaction in it has a path. So records
// are made of maxBuilt messages at a time, and a batch ends before its records exceed maxTextBytes.
const (
	maxBuilt     = 1024
	maxTextBytes = write.MaxBatchBytes / 2
)

// batch is a run of messages with everything that is stored for them.
type batch struct {
	before uint64     // sequence before the first message
	behind *tree.Tree // the tree with the records up to that
	msgs   []events.LogMessage
	built  []build.Built
	rows   []storage.EvidenceRow
	nodes  []storage.TreeNode
	tree   *tree.Tree // the tree with the batch
	bytes  int        // of the records
}

// newBatch makes an empty batch behind the records of a tree, with room for n messages.
func newBatch(behind *tree.Tree, n int) *batch {
	return &batch{
		before: uint64(behind.Size()), behind: behind, tree: behind.Clone(), msgs: make([]events.LogMessage, 0, n), built: make([]build.Built, 0, n),
		rows: make([]storage.EvidenceRow, 0, n), nodes: make([]storage.TreeNode, 0, 2*n+64),
	}
}

// add adds a message with its record.
func (b *batch) add(m events.LogMessage, built build.Built) {
	b.msgs, b.built, b.rows = append(b.msgs, m), append(b.built, built), append(b.rows, evidenceRow(built))
	b.bytes += len(built.Canonical)
	for _, n := range b.tree.Append(built.Hash) {
		b.nodes = append(b.nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
	}
}

// auditBatch makes the records of messages and starts storing them. The result of storing is
// returned by a later call of auditBatch, handleIdle or batchStore.await.
func (a *auditor) auditBatch(ctx context.Context, msgs []events.LogMessage) error {
	if err := a.retry(ctx, "redaction policies", func() error { return a.redaction.load(ctx) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "retention policies", func() error { return a.classes.load(ctx) }); err != nil {
		return err
	}
	if err := a.prepareBatches(ctx, msgs, func(b *batch) error { return a.storeBatch(ctx, b) }); err != nil {
		return err
	}
	// The batch before these is durable; the last one of these is in flight, and the chain holds its heads.
	a.records.chain.Commit()
	return nil
}

// prepareBatches makes the records of messages and the tree with them, and hands them to store:
// in one batch, unless they exceed maxText.
func (a *auditor) prepareBatches(ctx context.Context, msgs []events.LogMessage, store func(*batch) error) error {
	if err := a.retry(ctx, "heads", func() error { return a.records.loadHeads(ctx, msgs, a.store.stored) }); err != nil {
		return err
	}
	b := newBatch(a.tree, len(msgs))
	for part := range slices.Chunk(msgs, maxBuilt) {
		built, err := a.records.build(ctx, part)
		if err != nil {
			return err
		}
		for i := range built {
			if len(b.rows) > 0 && b.bytes+len(built[i].Canonical) > a.maxText {
				if err := store(b); err != nil {
					return err
				}
				b = newBatch(b.tree, maxBuilt)
			}
			b.add(part[i], built[i])
			if err := a.signed.compare(b.tree); err != nil {
				return err
			}
		}
	}
	return store(b)
}

// storeBatch starts storing a batch when the one before it is stored.
func (a *auditor) storeBatch(ctx context.Context, b *batch) error {
	if err := a.retry(ctx, "quarantine", func() error { return a.quarantine.storeBodies(ctx, b.msgs, b.built) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "findings", func() error { return a.findings.reportRedaction(ctx, b.msgs, b.built) }); err != nil {
		return err
	}
	if err := a.store.await(); err != nil {
		return err
	}
	a.tree = b.tree
	a.store.start(ctx, b)
	return nil
}

func evidenceRow(b build.Built) storage.EvidenceRow {
	r := b.Row()
	return storage.EvidenceRow{
		Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject, BrokerTime: r.BrokerTime,
		BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: b.Record.SessionIndex,
	}
}

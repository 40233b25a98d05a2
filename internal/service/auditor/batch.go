package auditor

import (
	"context"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/storage"
)

// batch is a run of messages with everything that is stored for them.
type batch struct {
	before uint64 // sequence before the first message
	built  []build.Built
	rows   []storage.EvidenceRow
	nodes  []storage.TreeNode
	tree   *tree.Tree // the tree with the batch
}

// auditBatch makes the records of one batch and starts storing them. The result of storing is
// returned by a later call of auditBatch, handleIdle or batchStore.await.
func (a *auditor) auditBatch(ctx context.Context, msgs []events.LogMessage) error {
	if err := a.retry(ctx, "redaction policies", func() error { return a.redaction.load(ctx) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "retention policies", func() error { return a.classes.load(ctx) }); err != nil {
		return err
	}
	b, err := a.prepareBatch(ctx, msgs)
	if err != nil {
		return err
	}
	if err := a.retry(ctx, "quarantine", func() error { return a.quarantine.storeBodies(ctx, msgs, b.built) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "findings", func() error { return a.findings.reportRedaction(ctx, msgs, b.built) }); err != nil {
		return err
	}
	if err := a.store.await(); err != nil {
		return err
	}
	a.records.chain.Commit()
	a.tree = b.tree
	a.store.start(ctx, b)
	return nil
}

// prepareBatch makes the records of a batch and the tree with them.
func (a *auditor) prepareBatch(ctx context.Context, msgs []events.LogMessage) (*batch, error) {
	if err := a.retry(ctx, "heads", func() error { return a.records.loadHeads(ctx, msgs) }); err != nil {
		return nil, err
	}
	built, err := a.records.build(ctx, msgs)
	if err != nil {
		return nil, err
	}
	b := &batch{
		built: built, before: uint64(a.tree.Size()), tree: a.tree.Clone(),
		rows: make([]storage.EvidenceRow, len(built)), nodes: make([]storage.TreeNode, 0, 2*len(built)+64),
	}
	for i := range built {
		b.rows[i] = evidenceRow(built[i])
		for _, n := range b.tree.Append(built[i].Hash) {
			b.nodes = append(b.nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
	}
	return b, nil
}

func evidenceRow(b build.Built) storage.EvidenceRow {
	r := b.Row()
	return storage.EvidenceRow{
		Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject, BrokerTime: r.BrokerTime,
		BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: b.Record.SessionIndex,
	}
}

package auditor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
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
// returned by a later call of auditBatch, handleIdle or awaitStore.
func (a *auditor) auditBatch(ctx context.Context, msgs []events.LogMessage) error {
	if err := a.retry(ctx, "redaction policies", func() error { return a.loadRedaction(ctx) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "retention policies", func() error { return a.loadClasses(ctx) }); err != nil {
		return err
	}
	b, err := a.prepareBatch(ctx, msgs)
	if err != nil {
		return err
	}
	if err := a.retry(ctx, "quarantine", func() error { return a.quarantine.storeBodies(ctx, msgs, b.built) }); err != nil {
		return err
	}
	if err := a.retry(ctx, "findings", func() error { return a.reportRedaction(ctx, msgs, b.built) }); err != nil {
		return err
	}
	if err := a.awaitStore(); err != nil {
		return err
	}
	a.chain.Commit()
	a.tree = b.tree
	a.storeStarted = time.Now()
	a.startStore(ctx, b)
	return nil
}

// prepareBatch makes the records of a batch and the tree with them.
func (a *auditor) prepareBatch(ctx context.Context, msgs []events.LogMessage) (*batch, error) {
	if err := a.retry(ctx, "heads", func() error { return a.loadHeads(ctx, msgs) }); err != nil {
		return nil, err
	}
	built, err := a.buildRecords(ctx, msgs)
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

// buildRecords makes the records. It waits for session keys that are not available now; any other
// error is final.
func (a *auditor) buildRecords(ctx context.Context, msgs []events.LogMessage) (built []build.Built, err error) {
	a.keys.setContext(ctx)
	var final error
	err = a.retry(ctx, "session keys", func() error {
		built, final = a.builder.BuildParts(a.chain, msgs, a.keys, partCount(len(msgs)), runParallel)
		if errors.Is(final, sessionsecrets.ErrUnreachable) {
			return final
		}
		return nil
	})
	return built, errors.Join(err, final)
}

// partSize is how many records justify a goroutine.
const partSize = 64

// partCount is the number of parts in which a batch of n messages is built. There are more parts
// than processors because some wait for keys.
func partCount(n int) int { return min(n/partSize, 2*runtime.GOMAXPROCS(0)) + 1 }

// runParallel runs the parts of a batch concurrently.
func runParallel(parts []func()) {
	var all sync.WaitGroup
	for _, p := range parts[1:] {
		all.Go(p)
	}
	parts[0]()
	all.Wait()
}

// loadHeads reads the heads of the sessions in a batch with one query. The database may not have
// the heads of the batch in flight yet; the chain still holds those, because it forgets heads
// only when the next batch is committed to it.
func (a *auditor) loadHeads(ctx context.Context, msgs []events.LogMessage) error {
	scopes := make([]evidence.SessionID, len(msgs))
	for i, m := range msgs {
		var err error
		if scopes[i], err = a.builder.ChainSession(m, a.keys); err != nil {
			return err
		}
	}
	missing := a.chain.MissingHeads(scopes)
	if len(missing) == 0 {
		return nil
	}
	ask := make([]storage.SessionID, len(missing))
	for i, k := range missing {
		ask[i] = storage.SessionID(k)
	}
	heads, err := a.db.SessionHeads(ctx, a.shard, ask)
	if err != nil {
		return fmt.Errorf("reading the heads of %d sessions: %w", len(ask), err)
	}
	for _, k := range missing {
		h := heads[storage.SessionID(k)]
		a.chain.PutHead(k, evidence.Head(h))
	}
	return nil
}

func evidenceRow(b build.Built) storage.EvidenceRow {
	r := b.Row()
	return storage.EvidenceRow{
		Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject, BrokerTime: r.BrokerTime,
		BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: b.Record.SessionIndex,
	}
}

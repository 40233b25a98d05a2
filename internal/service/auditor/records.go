package auditor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/storage"
)

// recordMaker makes the records of messages. One goroutine uses it.
type recordMaker struct {
	shardAccess
	builder *build.Builder
	chain   *build.Chain
	keys    *sessionSecrets
}

// newRecordMaker makes the part. Its chain loads nothing itself: loadHeads gives it the heads before each
// build.
func newRecordMaker(access shardAccess, policies *redactionPolicies, classes *retentionClasses, keys *sessionSecrets) (*recordMaker, error) {
	builder, err := build.NewBuilder(access.shard, access.space)
	if err != nil {
		return nil, err
	}
	return &recordMaker{
		shardAccess: access, keys: keys,
		builder: builder.WithPolicies(policies.policyOf).WithClasses(classes.classOf),
		chain:   build.NewChain(refuseHead, 0),
	}, nil
}

// refuseHead refuses a session that loadHeads did not read: an empty head would begin its chain again.
func refuseHead(events.SessionID) (evidence.Head, error) {
	return evidence.Head{}, errors.New("loadHeads did not read it")
}

// build makes the records. It waits for session keys that are not available now; any other
// error is final.
func (m *recordMaker) build(ctx context.Context, msgs []events.LogMessage) (built []build.Built, err error) {
	m.keys.setContext(ctx)
	var final error
	err = m.retry(ctx, "session keys", func() error {
		built, final = m.builder.BuildParts(m.chain, msgs, m.keys, partCount(len(msgs)), runParallel)
		if errors.Is(final, sessionsecrets.ErrUnreachable) {
			return final
		}
		return nil
	})
	return built, errors.Join(err, final)
}

// loadHeads reads the heads of the sessions in a batch with one query. The database may not have
// the heads of the batch in flight yet; the chain still holds those, because it forgets heads
// only when the next batch is committed to it.
func (m *recordMaker) loadHeads(ctx context.Context, msgs []events.LogMessage) error {
	sessions := make([]events.SessionID, len(msgs))
	for i, msg := range msgs {
		var err error
		if sessions[i], err = m.builder.ChainSession(msg, m.keys); err != nil {
			return err
		}
	}
	missing := m.chain.MissingHeads(sessions)
	if len(missing) == 0 {
		return nil
	}
	heads := make(map[events.SessionID]evidence.Head, len(missing))
	err := m.db.SessionHeads(ctx, m.shard, missing, func(r storage.EvidenceRow) (err error) {
		heads[events.SessionID{Tenant: r.Tenant, Session: r.Session}], err = headOf(r)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the heads of %d sessions: %w", len(missing), err)
	}
	for _, k := range missing {
		m.chain.PutHead(k, heads[k])
	}
	return nil
}

// headOf is the head of a session with this last record. Index and hash are those of the text: who
// can write to the database could otherwise have the auditor sign records that do not follow each
// other. Of an expired record there are only the columns.
func headOf(r storage.EvidenceRow) (evidence.Head, error) {
	changed := &storage.ConflictError{Shard: r.Shard, Seq: r.Seq, What: "the columns of the row are not those of its text"}
	if r.Record == "" {
		if r.SessionIndex == nil {
			return evidence.Head{}, changed
		}
		return evidence.Head{Index: *r.SessionIndex, Hash: r.RecordHash}, nil
	}
	rec, err := evidence.ParseRecord([]byte(r.Record))
	hash := evidence.HashRecord([]byte(r.Record))
	if err != nil || hash != r.RecordHash || rec.Seq != r.Seq || rec.Tenant != r.Tenant || rec.Session != r.Session || rec.SessionIndex == nil {
		return evidence.Head{}, changed
	}
	return evidence.Head{Index: *rec.SessionIndex, Hash: hash}, nil
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

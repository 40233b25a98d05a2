package auditor

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
)

// recordMaker makes the records of messages. One goroutine uses it.
type recordMaker struct {
	shardAccess
	builder *build.Builder
	chain   *build.Chain
	keys    *sessionSecrets
	last    lastSequences
}

// newRecordMaker makes the part. Its chain loads nothing itself: loadHeads gives it the heads before each
// build.
func newRecordMaker(access shardAccess, policies *redactionPolicies, classes *retentionClasses, keys *sessionSecrets) (*recordMaker, error) {
	builder, err := build.NewBuilder(access.shard, access.space)
	if err != nil {
		return nil, err
	}
	return &recordMaker{
		shardAccess: access, keys: keys, last: newLastSequences(),
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
	if err = errors.Join(err, final); err != nil {
		return nil, err
	}
	for i := range built {
		m.last.note(events.SessionID{Tenant: built[i].Record.Tenant, Session: built[i].Record.Session}, built[i].Record.Seq)
	}
	return built, nil
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

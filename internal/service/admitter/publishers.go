package admitter

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// Bounds of one record of a change, which must fit into a message of the log.
const (
	maxDocuments   = 1000
	maxDeclared    = 256 << 10 // bytes of declarations
	maxChangeError = 4096      // bytes
)

// publisherStore is the stateStore of declarations about publishers and tools. Every change
// compiles all documents again, since any document can claim a name.
type publisherStore struct {
	s       *service
	set     atomic.Pointer[publisher.Set] // nil while there is no document
	held    map[string]bucketEntry        // used by the follower only
	changes changeLog                     // used by the follower only
	opened  bool                          // used by the follower only
}

func newPublisherStore(s *service) *publisherStore {
	return &publisherStore{s: s, held: map[string]bucketEntry{}, changes: changeLog{s: s, kind: events.ControlPublisher}}
}

func (p *publisherStore) start(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (stop func(), err error) {
	return newTrackedFollower(p.s, streams.BucketPublishers, policySettleDelay, p.applyChanges).start(ctx, nc, js)
}

// reachedThrough reports whether a publisher of a tenant is registered as reached through a gateway.
func (p *publisherStore) reachedThrough(tenant, name, gateway string) bool {
	set := p.set.Load()
	return set != nil && gateway != "" && set.Gateway(tenant, name) == gateway
}

// repliers are the publishers of a tenant that answer its confirmations; none if nothing is declared.
func (p *publisherStore) repliers(tenant string) []string {
	if set := p.set.Load(); set != nil {
		return set.Repliers(tenant)
	}
	return nil
}

// entry is what the catalogue says of a publisher's tool, nil if it says nothing.
func (p *publisherStore) entry(tenant, source, tool string) *publisher.Entry {
	if set := p.set.Load(); set != nil {
		return set.Lookup(tenant, source, tool).Entry
	}
	return nil
}

// load leaves Publishers nil while nothing is declared.
func (p *publisherStore) load(_ admission.Request, in *admission.Inputs) {
	if set := p.set.Load(); set != nil {
		in.Publishers = set
	}
}

// reserve implements stateStore: a declaration is not used up.
func (p *publisherStore) reserve(context.Context, admission.Request, *admission.Outcome) (reservation, error) {
	return reservation{}, nil
}

// applyChanges compiles the content of the bucket, records the change and puts it in force, in
// this order. A change that cannot be recorded takes effect all the same, and no decision is
// recorded until the log has the change.
func (p *publisherStore) applyChanges(ctx context.Context, changed map[string]bucketEntry, revision uint64) {
	if len(changed) == 0 && p.opened {
		p.changes.recordPending(ctx)
		return
	}
	for key, e := range changed {
		if p.held[key] = e; e.value == nil {
			delete(p.held, key)
		}
	}
	docs, unusable := p.currentDocuments()
	set := publisher.Compile(docs, revision, unusable...)
	err := set.Err()
	if p.opened || len(p.held) > 0 || p.isRecorded(ctx) {
		for _, r := range changeRecords(set, revision) {
			p.changes.addChange(revision, r)
		}
	}
	p.opened = true
	p.changes.recordPending(ctx)
	if len(p.held) == 0 {
		set = nil
	}
	p.set.Store(set)
	p.reportState(len(docs), revision, err)
}

// isRecorded reports whether the log may say that something is declared: the last declaration may have been
// removed while no admitter ran.
func (p *publisherStore) isRecorded(ctx context.Context) bool {
	last, err := latestRecord[events.PublisherChange](ctx, &p.changes)
	return err != nil || len(last.Documents) > 0
}

// currentDocuments returns the documents of the bucket, and the keys that do not name one.
func (p *publisherStore) currentDocuments() (docs []publisher.Document, unusable []string) {
	for key, e := range p.held {
		tenant, name, err := publisher.ParseKey(key)
		if err != nil {
			unusable = append(unusable, key)
			continue
		}
		docs = append(docs, publisher.Document{Tenant: tenant, Name: name, Data: e.value, Revision: e.revision})
	}
	slices.Sort(unusable)
	return docs, unusable
}

// reportState reports the state of the documents in log and health.
func (p *publisherStore) reportState(documents int, revision uint64, err error) {
	if err != nil {
		p.s.env.Log.Error().Err(err).Uint64("revision", revision).
			Msg("what is declared about publishers and tools cannot be used; every request of its tenants is denied until it is mended (countersign publisher list)")
		p.s.env.Health.Set("publishers", "what is declared about publishers and tools cannot be used, every request of its tenants is denied: "+err.Error())
		return
	}
	if documents > 0 {
		p.s.env.Log.Info().Uint64("revision", revision).Int("documents", documents).Msg("publishers and tools loaded")
	}
	p.s.env.Health.Set("publishers", "")
}

// changeRecords returns the log's records of a change: one, or as many parts as its documents need.
func changeRecords(set *publisher.Set, revision uint64) (list []events.PublisherChange) {
	parts := splitDocuments(set.Documents())
	for i, docs := range parts {
		c := events.PublisherChange{Writer: writerName(), Revision: revision, Digest: set.Digest(), Documents: docs}
		if len(parts) > 1 {
			c.Part, c.Parts = i+1, len(parts)
		}
		if err := set.ErrOf(func(tenant string) bool {
			return slices.ContainsFunc(docs, func(d events.PublisherDocument) bool { return d.Tenant == tenant })
		}); err != nil {
			text := err.Error()
			c.Error = strings.ToValidUTF8(text[:min(maxChangeError, len(text))], "")
		}
		list = append(list, c)
	}
	return list
}

// splitDocuments cuts a list into parts that fit into one record each; there is at least one part.
// A declaration that is too large for any record is left out.
func splitDocuments(docs []events.PublisherDocument) (parts [][]events.PublisherDocument) {
	begin, size := 0, 0
	for i, d := range docs {
		next := declaredBytes(d.Declares)
		if next > maxDeclared {
			docs[i].Declares, next = nil, 0
		}
		if i > begin && (i-begin == maxDocuments || size+next > maxDeclared) {
			parts = append(parts, docs[begin:i])
			begin, size = i, 0
		}
		size += next
	}
	return append(parts, append([]events.PublisherDocument{}, docs[begin:]...))
}

// declaredBytes is about the size of a declaration in a record.
func declaredBytes(d *events.PublisherDeclares) int {
	if d == nil {
		return 0
	}
	size := 128 + len(d.Publisher) + len(d.Source)
	for _, names := range [][]string{d.Absent, d.Partial, d.Profiles} {
		for _, name := range names {
			size += 8 + len(name)
		}
	}
	return size
}

package policycmd

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/admission/replay"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/internal/recorded"
	"github.com/countersign-dev/countersign/streams"
)

// storesTimeout bounds one read of a bucket's history.
const storesTimeout = 30 * time.Second

// pastStores finds mandates and declarations as decisions saw them, in the history of their
// buckets. One goroutine uses it.
type pastStores struct {
	ctx        context.Context
	js         jetstream.JetStream
	mandates   map[string]*mandate.Mandate
	publishers map[string]publisher.Registry
	failed     error // the first store that could not be read
}

func newPastStores(ctx context.Context, js jetstream.JetStream) *pastStores {
	return &pastStores{ctx: ctx, js: js, mandates: map[string]*mandate.Mandate{}, publishers: map[string]publisher.Registry{}}
}

// known returns what a replay needs from the stores.
func (s *pastStores) known(k digest.Keys) replay.KnownState {
	return replay.KnownState{Mandate: s.mandate, Publishers: s.declared, TenantKey: k.Tenant, Session: k.Session}
}

func (s *pastStores) note(err error) {
	if err != nil && s.failed == nil {
		s.failed = err
	}
}

// mandate finds the document with a hash among the revisions of a mandate. It checks no signatures: what they counted
// for is in the record.
func (s *pastStores) mandate(tenant, id, hash string) *mandate.Mandate {
	name := tenant + "\x00" + id + "\x00" + hash
	if m, looked := s.mandates[name]; looked {
		return m
	}
	ctx, cancel := context.WithTimeout(s.ctx, storesTimeout)
	defer cancel()
	s.mandates[name] = nil
	revisions, err := streams.KVHistory(ctx, s.js, streams.BucketMandates, mandate.Key(tenant, id))
	s.note(err)
	for _, r := range revisions {
		stored, err := mandate.DecodeStored(r.Value)
		if err != nil || stored.ID != id {
			continue
		}
		if m, err := mandate.Compile([]byte(stored.Mandate), nil); err == nil && m.Hash == hash {
			s.mandates[name] = m
		}
	}
	return s.mandates[name]
}

// declared compiles a tenant's declarations at a revision.
func (s *pastStores) declared(tenant string, ref events.SnapshotRef) publisher.Registry {
	name := fmt.Sprintf("%s\x00%d\x00%s", tenant, ref.Revision, ref.Digest)
	if r, looked := s.publishers[name]; looked {
		return r
	}
	ctx, cancel := context.WithTimeout(s.ctx, storesTimeout)
	defer cancel()
	s.publishers[name] = nil
	entries, err := streams.KVAsOf(ctx, s.js, streams.BucketPublishers, ref.Revision)
	if err != nil {
		s.note(err)
		return nil
	}
	var docs []publisher.Document
	for _, e := range entries {
		if t, doc, err := publisher.ParseKey(e.Key); err == nil && t == tenant {
			docs = append(docs, publisher.Document{Tenant: t, Name: doc, Data: e.Value, Revision: e.Revision})
		}
	}
	set := publisher.Compile(docs, ref.Revision)
	if state := set.State(tenant); state != nil && state.Digest == ref.Digest {
		s.publishers[name] = set
	}
	return s.publishers[name]
}

// configOf converts the policies in force to the form of package admission.
func configOf(in *recorded.PolicyInForce) *admission.Config {
	return &admission.Config{Policies: in.Set, PolicyErr: in.Err, Revision: in.Change.Revision}
}

// recordOf converts a log entry to the form of package replay.
func recordOf(e recorded.Entry) replay.Record {
	return replay.Record{Decision: e.Decision, Header: e.Request.Header, Body: e.Request.Body}
}

package auditor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/streams"
)

const retentionStream = "KV_" + streams.BucketRetention

// changeNotes writes to the log what changes in the bucket, and what is deleted from the quarantine.
type changeNotes struct {
	custodyAccess
	bucketVersion string // the bucket's incarnation
	notedSeq      uint64 // the last revision that was noted
}

// findNoted finds the last revision of the bucket that was noted on the log, unless it is known for
// this incarnation of the bucket.
func (n *changeNotes) findNoted(ctx context.Context, store string) error {
	if store == n.bucketVersion {
		return nil
	}
	m, err := streams.LastBySubject(ctx, n.js, n.stream, n.space.Control(n.stream, events.ControlRetention))
	if err != nil {
		return err
	}
	n.bucketVersion, n.notedSeq = store, 0
	if m == nil {
		return nil
	}
	if r, err := events.DecodeRecord[events.RetentionChange](m.Body); err == nil && r.Store == store {
		n.notedSeq = r.Revision
	}
	return nil
}

// noteRevisions writes every revision of the bucket to the log, in order. After a crash a
// revision can be there twice, with the same id. policyChanged is valid with an error, too.
func (n *changeNotes) noteRevisions(ctx context.Context, last uint64) (policyChanged bool, err error) {
	if n.notedSeq >= last {
		return false, nil
	}
	for m, err := range streams.EachBySubject(ctx, n.js, retentionStream, "$KV."+streams.BucketRetention+".>", n.notedSeq+1) {
		if err != nil {
			return policyChanged, err
		}
		if m.Seq > last {
			break
		}
		change := n.changeOf(*m)
		if strings.HasPrefix(change.What, "policy") {
			policyChanged = true
		}
		msg, err := n.controlMessage(events.ControlRetention, fmt.Sprintf("retention-%s-%d", n.bucketVersion, m.Seq), change)
		if err != nil {
			return policyChanged, err
		}
		if err := streams.StoreAll(ctx, n.nc, []streams.Msg{msg}); err != nil {
			return policyChanged, fmt.Errorf("noting revision %d of the retention bucket: %w", m.Seq, err)
		}
		n.notedSeq = m.Seq
	}
	n.notedSeq = last
	return policyChanged, nil
}

// changeOf describes what a revision changed. It does not name data subjects, since the log keeps
// its records for ever.
func (n *changeNotes) changeOf(m events.LogMessage) events.RetentionChange {
	key := strings.TrimPrefix(m.Subject, "$KV."+streams.BucketRetention+".")
	r := events.RetentionChange{Writer: n.name, Store: n.bucketVersion, Revision: m.Seq, What: "unreadable"}
	if tenant, ok := retention.PolicyTenant(key); ok {
		r.Tenant, r.What = tenant, "policy"
		if isDeletion(m) {
			r.What = "policy_removed"
			return r
		}
		p, err := retention.Parse(tenant, m.Body)
		if err != nil {
			r.Error = err.Error()
			return r
		}
		r.ID = p.ID()
		return r
	}
	tenant, ok := retention.StateTenant(key)
	if !ok {
		r.Error = "no key of a tenant"
		return r
	}
	r.Tenant = tenant
	s, err := retention.Decode(m.Body)
	if err != nil || isDeletion(m) {
		r.Error = "the holds and orders of the tenant cannot be read"
		return r
	}
	l := s.Last
	r.What, r.ID, r.Session, r.By, r.Reason, r.At = l.What, l.ID, l.Session, l.By, l.Reason, l.At
	if o, ok := s.FindOrder(l.ID); ok {
		r.Error = o.Problem
	}
	return r
}

// noteQuarantine writes to the log what is deleted from the quarantine, before it is deleted.
// After a crash in between it is written again.
func (n *changeNotes) noteQuarantine(ctx context.Context, tenant string, p *retention.Policy, seqs []uint64, now time.Time) error {
	msg, err := n.controlMessage(events.ControlRetention, "quarantine-"+uuid.NewString(), events.RetentionChange{
		Writer: n.name, Store: n.bucketVersion, Revision: n.notedSeq, Tenant: tenant, What: "quarantine", ID: p.ID(), At: events.At(now), Quarantined: retention.JoinSpans(seqs),
	})
	if err != nil {
		return err
	}
	if err := streams.StoreAll(ctx, n.nc, []streams.Msg{msg}); err != nil {
		return fmt.Errorf("noting what goes out of quarantine: %w", err)
	}
	return nil
}

func isDeletion(m events.LogMessage) bool { return m.HeaderValue("KV-Operation") != "" }

func binaryHeader(stream, id string) map[string][]string {
	return cloudevents.Binary(cloudevents.Attributes{
		ID: id, Source: "/countersign/" + stream + "/auditor", Type: events.TypeControl, Time: time.Now(),
	})
}

func keyedDigest(key []byte, value string) string {
	return digest.Keyed(key, []byte("countersign/subject/v1\x00"+value))
}

package auditor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/streams"
)

const retentionStream = "KV_" + streams.BucketRetention

// findNoted finds out which revision of the bucket was the last to be noted.
func (c *custodian) findNoted(ctx context.Context, store string) error {
	m, err := streams.LastBySubject(ctx, c.js, c.a.flags.Stream, c.a.flags.Space().Control(c.a.flags.Stream, events.ControlRetention))
	if err != nil {
		return err
	}
	c.bucketVersion, c.notedSeq = store, 0
	if m == nil {
		return nil
	}
	if r, err := events.DecodeRecord[events.RetentionChange](m.Body); err == nil && r.Store == store {
		c.notedSeq = r.Revision
	}
	return nil
}

// noteRevisions writes every revision of the bucket onto the log, once and in order.
// After a crash in between one can be there twice, with the same id.
func (c *custodian) noteRevisions(ctx context.Context, last uint64) error {
	for c.notedSeq < last {
		m, err := streams.NextBySubject(ctx, c.js, retentionStream, "$KV."+streams.BucketRetention+".>", c.notedSeq+1)
		if err != nil {
			return err
		}
		if m == nil || m.Seq > last {
			c.notedSeq = last
			return nil
		}
		change := c.changeOf(*m)
		if strings.HasPrefix(change.What, "policy") {
			c.next = time.Time{}
		}
		msg, err := controlMessage(c.a, events.ControlRetention, fmt.Sprintf("retention-%s-%d", c.bucketVersion, m.Seq), change)
		if err != nil {
			return err
		}
		if err := streams.StoreAll(ctx, c.nc, []streams.Msg{msg}); err != nil {
			return fmt.Errorf("noting revision %d of the retention bucket: %w", m.Seq, err)
		}
		c.notedSeq = m.Seq
	}
	return nil
}

// changeOf says what a revision changed. Data subjects are not named: the log
// keeps for ever what it is told.
func (c *custodian) changeOf(m events.LogMessage) events.RetentionChange {
	key := strings.TrimPrefix(m.Subject, "$KV."+streams.BucketRetention+".")
	r := events.RetentionChange{Writer: c.writer, Store: c.bucketVersion, Revision: m.Seq, What: "unreadable"}
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

func isDeletion(m events.LogMessage) bool { return m.HeaderValue("KV-Operation") != "" }

func binaryHeader(stream, id string) map[string][]string {
	return cloudevents.Binary(cloudevents.Attributes{
		ID: id, Source: "/countersign/" + stream + "/auditor", Type: events.TypeControl, Time: time.Now(),
	})
}

func keyedDigest(key []byte, value string) string {
	return digest.Keyed(key, []byte("countersign/subject/v1\x00"+value))
}

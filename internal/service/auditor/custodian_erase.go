package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/erasureplan"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// erasureWorker carries out orders that erase messages: it deletes them from the log, and what else
// there is of their sessions.
type erasureWorker struct {
	custodyAccess
	bucket   *retentionBucket
	messages *messageEraser
	master   digest.Master
	// plans holds, by order, what was checked against holds and idleness when the order began. It serves the first attempt
	// to record it: a later one, or a new custodian, plans again.
	plans map[string]erasureplan.Plan
	// forget holds the keys of states whose older revisions may name an erased data subject.
	forget map[string]bool
}

// spansInRecord is how many spans one erasure record names at most.
const spansInRecord = 4000

// beginOrder makes an order irrevocable, unless there is a reason against it, which it returns.
// now is the time that idleness is measured to.
func (w *erasureWorker) beginOrder(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order, now time.Time) (why string, err error) {
	p, err := ev.NewPlan(ctx, o)
	switch {
	case errors.Is(err, erasureplan.ErrNothing), errors.Is(err, erasureplan.ErrTooMany), errors.Is(err, erasureplan.ErrHasSession):
		return err.Error(), nil
	case err != nil:
		return "", err
	}
	if err := p.CheckIdle(now, time.Duration(o.IdleSeconds)*time.Second); err != nil {
		return err.Error(), nil
	}
	if o.ByPolicy() {
		policy, err := w.bucket.loadPolicy(ctx, ev.Tenant)
		if err != nil || policy == nil {
			return policyChanged, err
		}
		if err := p.CheckPeriods(now, policy.LogPeriod); err != nil {
			return err.Error(), nil
		}
	}
	w.plans[o.ID] = p
	if why, err = w.bucket.beginUnheld(ctx, ev, key, o, p); why != "" || err != nil {
		delete(w.plans, o.ID)
	}
	return why, err
}

// continueErasure continues an erasure that has begun. Nothing is deleted until its record is in
// the log and in the evidence, and the correlator has passed it, too. Then keys, quarantine,
// approvals and messages are deleted, in this order, and a final record says that the erasure is
// done. It returns true when the order is.
func (w *erasureWorker) continueErasure(ctx context.Context, ev erasureplan.Evidence, key string, o retention.Order) (finished bool, err error) {
	if err := w.log.Load(ctx); err != nil {
		return false, err
	}
	begun, done := w.erasureRecords(o.ID)
	if begun == nil {
		err := w.recordErasureBegun(ctx, ev, o)
		delete(w.plans, o.ID) // more may be there when it is tried again
		if err != nil {
			return false, err
		}
		if err := w.log.Load(ctx); err != nil {
			return false, err
		}
		if begun, _ = w.erasureRecords(o.ID); begun == nil {
			return false, errors.New("its record is not in the log yet")
		}
	}
	if done == nil {
		if passed, err := w.hasPassed(ctx, begun[len(begun)-1].Seq); err != nil || !passed {
			return false, err
		}
		r, err := w.destroyData(ctx, ev, begun)
		if err != nil {
			return false, err
		}
		if err := w.publishDone(ctx, begun, r); err != nil {
			return false, err
		}
		done = &begun[0]
		done.Keys, done.Quarantined, done.Approvals = r.Keys, r.Quarantined, r.Approvals
	}
	result := retention.Result{Sessions: len(begun[0].Sessions), Keys: done.Keys, Quarantined: done.Quarantined, Approvals: done.Approvals}
	for _, e := range begun {
		result.Messages += e.Messages
	}
	if err := w.bucket.changeState(ctx, key, func(s retention.State) (retention.State, error) { return s.FinishOrder(o.ID, result, time.Now()) }); err != nil {
		return false, err
	}
	w.env.Log.Info().Str("tenant", ev.Tenant).Str("erasure", o.ID).Uint64("messages", result.Messages).Int("keys", result.Keys).Msg("erased")
	if o.Subject != "" {
		w.forget[key] = true
	}
	return true, nil
}

// erasureRecords returns the records of an erasure in the log: begun only if all parts of one
// attempt are there.
func (w *erasureWorker) erasureRecords(id string) (begun []erasures.Record, done *erasures.Record) {
	var attempt []erasures.Record
	for _, e := range w.log.Records() {
		switch {
		case e.ErasureID != id:
		case e.State == events.ErasureDone:
			done = &e
		case e.Part == 1:
			attempt = []erasures.Record{e}
		case e.Part == len(attempt)+1:
			attempt = append(attempt, e)
		}
		if n := len(attempt); n > 0 && n == attempt[0].Parts {
			begun = attempt
		}
	}
	return begun, done
}

// recordErasureBegun writes the records that name what will be missing.
func (w *erasureWorker) recordErasureBegun(ctx context.Context, ev erasureplan.Evidence, o retention.Order) error {
	p, planned := w.plans[o.ID]
	if !planned {
		var err error
		if p, err = ev.NewPlan(ctx, o); err != nil {
			return err
		}
	}
	spans := retention.JoinSpans(p.Seqs)
	parts := slices.Collect(slices.Chunk(spans, spansInRecord))
	var msgs []streams.Msg
	for i, part := range parts {
		e := events.Erasure{
			ErasureID: o.ID, Shard: w.shard, State: events.ErasureBegun, Part: i + 1, Parts: len(parts), Tenant: ev.Tenant, Sessions: []string{},
			SubjectDigest: w.digestOf(ev.Tenant, o.Subject), Cause: causeOf(o), Sequences: part, Reason: o.Reason, OrderedBy: o.By, OrderedAt: o.At,
			At: events.At(time.Now()), Writer: w.name,
		}
		if i == 0 {
			e.Sessions = p.Sessions
		}
		for _, s := range part {
			e.Messages += s[1] - s[0] + 1
		}
		msg, err := w.signedErasure(e)
		if err != nil {
			return err
		}
		msgs = append(msgs, msg)
	}
	return streams.StoreLinked(ctx, w.js, w.stream, msgs...)
}

func causeOf(o retention.Order) string {
	if o.ByPolicy() {
		return events.CausePolicy
	}
	return events.CauseOrder
}

func (w *erasureWorker) signedErasure(e events.Erasure) (m streams.Msg, err error) {
	if e.Vouch, err = signing.SignErasure(w.signer, e); err != nil {
		return m, err
	}
	return w.controlMessage(events.ControlErasure, fmt.Sprintf("erasure-%s-%s-%d", e.ErasureID, e.State, e.Part), e)
}

// hasPassed reports whether the evidence and the correlator's cursor are past an erasure record.
// Then every message to be deleted has its record in the evidence and its outputs in the log, and
// no component needs it any more.
func (w *erasureWorker) hasPassed(ctx context.Context, seq uint64) (bool, error) {
	position, _, err := w.db.Position(ctx, w.shard)
	if err != nil || position < seq {
		return false, err
	}
	m, err := streams.LastBySubject(ctx, w.js, w.stream, w.space.Control(w.stream, events.ControlCursor))
	if err != nil || m == nil {
		return false, err
	}
	at, err := events.DecodeRecord[events.Cursor](m.Body)
	return err == nil && at.Consumed >= seq, err
}

// destroyData deletes everything that an erasure names. It skips what is already deleted. A session
// that goes on gets another key and other workflows: these are left, also when it is tried again.
func (w *erasureWorker) destroyData(ctx context.Context, ev erasureplan.Evidence, begun []erasures.Record) (r retention.Result, err error) {
	sessions := begun[0].Sessions
	if evidence.MaskedNames(sessions) {
		own, err := w.ownNames(ctx, ev.Tenant, begun)
		if err != nil {
			return r, err
		}
		sessions = append(slices.Clone(sessions), own...)
	}
	began := begun[len(begun)-1].Stored
	for _, session := range sessions {
		n, err := w.eraseKey(ctx, events.SessionID{Tenant: ev.Tenant, Session: session}, began)
		if err != nil {
			return r, err
		}
		r.Keys += min(n, 1)
	}
	named := func(seq uint64) bool {
		return slices.ContainsFunc(begun, func(e erasures.Record) bool { return e.Covers(seq) })
	}
	for _, tenant := range []string{ev.Tenant, ""} { // messages that came on no subject of the log have no tenant
		n, err := w.eraseQuarantine(ctx, tenant, named)
		if err != nil {
			return r, err
		}
		r.Quarantined += n
	}
	if r.Approvals, err = w.eraseApprovals(ctx, ev.Tenant, sessions, began); err != nil {
		return r, err
	}
	for _, e := range begun {
		for _, s := range e.Sequences {
			for seq := s[0]; seq <= s[1]; seq++ {
				if _, err := w.messages.eraseMessage(ctx, w.stream, seq); err != nil {
					return r, err
				}
			}
		}
	}
	return r, nil
}

// ownNames returns the session names, as the log has them, of those messages of an erasure that
// still exist. Keys and approvals are deleted before messages, so a session without a message
// here has no key left.
func (w *erasureWorker) ownNames(ctx context.Context, tenant string, begun []erasures.Record) (names []string, err error) {
	for _, e := range begun {
		for _, s := range e.Sequences {
			for seq := s[0]; seq <= s[1]; seq++ {
				m, err := streams.MessageAt(ctx, w.js, w.stream, seq)
				if err != nil {
					return nil, err
				}
				if m == nil {
					continue
				}
				if k := w.builder.LogSession(*m); k.Tenant == tenant && redaction.SecretName(k.Session) && !slices.Contains(names, k.Session) {
					names = append(names, k.Session)
				}
			}
		}
	}
	return names, nil
}

// eraseKey destroys the key that a session had when its erasure began: all revisions in the bucket,
// and the copy in this auditor's memory.
func (w *erasureWorker) eraseKey(ctx context.Context, k events.SessionID, began time.Time) (int, error) {
	old := func(m events.LogMessage) bool { return !m.Time.After(began) }
	n, err := w.messages.eraseSubject(ctx, "KV_"+streams.BucketSessionSecrets, "$KV."+streams.BucketSessionSecrets+"."+sessionsecrets.BucketKey(k), old)
	w.keys.Forget(k)
	return n, err
}

func (w *erasureWorker) eraseQuarantine(ctx context.Context, tenant string, named func(uint64) bool) (int, error) {
	return w.messages.eraseSubject(ctx, streams.StreamQuarantine, w.space.Quarantine(tenant), func(m events.LogMessage) bool {
		seq, err := strconv.ParseUint(m.HeaderValue(headerQuarantineSeq), 10, 64)
		return err == nil && m.HeaderValue(headerQuarantineShard) == w.shard && named(seq)
	})
}

// eraseApprovals deletes the workflows that sessions had when their erasure began, with what their
// reviewers were shown: all revisions of every key that ever held one. An admitter may end a workflow
// between the list and the delete, so what is there is listed until nothing is left.
func (w *erasureWorker) eraseApprovals(ctx context.Context, tenant string, sessions []string, began time.Time) (n int, err error) {
	for before := map[string]bool{}; ; {
		revisions, err := w.approvalRevisions(ctx, tenant, sessions, began, before)
		if err != nil || len(revisions) == 0 {
			return n, err
		}
		for _, seq := range revisions {
			gone, err := w.messages.eraseMessage(ctx, approvalStream, seq)
			if err != nil {
				return n, err
			}
			if gone {
				n++
			}
		}
	}
}

const approvalStream = "KV_" + streams.BucketApprovals

// approvalRevisions lists the revisions of workflows whose first one was stored before an erasure began, by the broker's
// clock, and of those that before names; it adds the workflows to before. The newest comes first, so that the first one
// goes last: a later try finds what an earlier one left.
func (w *erasureWorker) approvalRevisions(ctx context.Context, tenant string, sessions []string, began time.Time, before map[string]bool) (list []uint64, err error) {
	for m, err := range streams.EachBySubject(ctx, w.js, approvalStream, "$KV."+streams.BucketApprovals+".>", 1) {
		if err != nil {
			return nil, err
		}
		var workflow struct {
			ID      string `json:"workflow_id"`
			Tenant  string `json:"tenant"`
			Session string `json:"session"`
		}
		_ = strictjson.Unmarshal(m.Body, &workflow)
		if workflow.Tenant != tenant || !slices.Contains(sessions, sessionToken(workflow.Session)) {
			continue
		}
		before[workflow.ID] = before[workflow.ID] || !m.Time.After(began)
		if before[workflow.ID] {
			list = append(list, m.Seq)
		}
	}
	slices.Reverse(list)
	return list, nil
}

// sessionToken is a session's name as records hold it.
func sessionToken(session string) string {
	value, _ := subject.Unescape(subject.Escape(session))
	return value
}

func (w *erasureWorker) publishDone(ctx context.Context, begun []erasures.Record, r retention.Result) error {
	e := begun[0].Erasure
	e.State, e.Part, e.Parts, e.At, e.Writer, e.Vouch = events.ErasureDone, 1, 1, events.At(time.Now()), w.name, ""
	e.Keys, e.Quarantined, e.Approvals = r.Keys, r.Quarantined, r.Approvals
	msg, err := w.signedErasure(e)
	if err != nil {
		return err
	}
	return streams.StoreLinked(ctx, w.js, w.stream, msg)
}

// forgetRevisions deletes the older revisions of tenants' states, if one of them names the data
// subject of an order. The log has the rest of their content, up to the revision noted; later ones
// have to wait.
func (w *erasureWorker) forgetRevisions(ctx context.Context, noted uint64) error {
	for key := range w.forget {
		e, err := streams.KVLast(ctx, w.js, streams.BucketRetention, key)
		if err != nil {
			return err
		}
		if e == nil {
			delete(w.forget, key)
			continue
		}
		subj, old := "$KV."+streams.BucketRetention+"."+key, func(m events.LogMessage) bool { return m.Seq < e.Revision && m.Seq <= noted }
		named := false
		for m, err := range streams.EachBySubject(ctx, w.js, retentionStream, subj, 1) {
			if err != nil {
				return err
			}
			named = named || old(*m) && namesSubject(m.Body)
		}
		if named {
			if _, err := w.messages.eraseSubject(ctx, retentionStream, subj, old); err != nil {
				return err
			}
		}
		if e.Revision <= noted {
			delete(w.forget, key)
		}
	}
	return nil
}

// namesSubject reports whether an order in a tenant's state names a data subject, or the state
// cannot be read.
func namesSubject(state []byte) bool {
	s, err := retention.Decode(state)
	return err != nil || slices.ContainsFunc(s.Orders, func(o retention.Order) bool { return o.Subject != "" })
}

// digestOf is a keyed digest that identifies a data subject without naming it.
func (w *erasureWorker) digestOf(tenant, subject string) string {
	if subject == "" {
		return ""
	}
	return keyedDigest(w.master.Tenant(tenant), subject)
}

package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/events"
)

// approvalSteps are what the acts on a workflow are to the calls that wait for
// it. A vote that does not settle it is none, and what uses an approval up is the
// decision.
var approvalSteps = map[string]step{
	"open": stepAsked, "join": stepAsked, "approve": stepApproved, "deny": stepRefused, "cancel": stepCancelled, "expire": stepExpired,
}

// waited notes a record of an approval in the timelines of the calls that it is
// about. It is no news of them: what they come to shows in the decision that
// follows.
func (m *machine) waited(f *fact, a events.Approval) {
	now := approvalSteps[a.Act]
	s, ok := m.sessions.peek(f.key)
	if now == noStep || a.Refused != "" || !ok {
		return
	}
	if c := s.decided(a.DecisionID); now == stepAsked && c != nil {
		c.step(now, f)
		return
	}
	workflow := show(a.WorkflowID)
	for _, c := range s.open {
		if workflow != "" && c.awaited().workflow == workflow && (now != stepAsked || !c.hasStep(now)) {
			c.step(now, f)
		}
	}
}

func (c *call) hasStep(s step) bool {
	return slices.ContainsFunc(c.timeline, func(e timelineEntry) bool { return e.step == s })
}

// confirmation is the user's question that an invocation rests on, and its
// answer.
type confirmation struct {
	asked, accepted aaepsession.Message
	explicit        bool // the question names the call
}

// confirmed notes them where they belong by the log's order: both come before the
// invocation, which shows which call they were about.
func (c *call) confirmed(f *fact) {
	if f.rests == nil {
		return
	}
	if c.binding = events.BindingInferred; f.rests.explicit {
		c.binding = events.BindingExplicit
	}
	for _, s := range [...]struct {
		step
		aaepsession.Message
	}{{stepAsked, f.rests.asked}, {stepApproved, f.rests.accepted}} {
		if s.Seq == 0 || len(c.timeline) >= maxTimeline {
			continue
		}
		i := len(c.timeline)
		for i > 0 && c.timeline[i-1].seq > s.Seq {
			i--
		}
		c.timeline = slices.Insert(c.timeline, i, newStep(s.step, s.Seq, s.At, s.ID, f.protocol))
	}
}

// begun is the sequence of the first of a call's own messages; 0 if there is
// none. What a user was asked before it is not the call's.
func (c *call) begun() uint64 {
	for _, e := range c.timeline {
		if e.step != stepAsked && e.step != stepApproved {
			return e.seq
		}
	}
	return 0
}

// A call that needs a person's approval must not be allowed without one
// (AH-C-042). What stands behind a recorded allow is on record, too; where there is
// no recorded allow, and in recordings, which have no ledger of approvals, what the
// call's events claim counts.

// claimsUnapproved judges the announcement of a call.
func (m *machine) claimsUnapproved(c *call, f *fact) {
	if f.kind != kindPre || !f.human || f.claim.verdict != events.Allow || f.approval.is(statusApproved) || m.approvedOnRecord(c) {
		return
	}
	if d := c.own().ledger; m.offline || d == nil || d.verdict != events.Allow {
		m.check("AH-C-042", c, f, about(f.eventID))
	}
}

// unapproved judges the execution of a call that had been allowed.
func (m *machine) unapproved(c *call, f *fact, st standing) {
	if c.human && !m.offline && st.ledger != nil && !m.approvedOnRecord(c) {
		m.check("AH-C-042", c, f, about(c.firstEvent(), f.eventID).proof(st).saying("no approval is on record"))
	}
}

// approvedOnRecord tells whether one of the recorded verdicts on a call rests on an
// approval, or waited for one that was given since. A call without any is judged by
// those on the one that it tries again.
func (m *machine) approvedOnRecord(c *call) bool {
	for depth := 0; len(c.decisions) == 0 && c.previous != nil && depth < maxChain; depth++ {
		c = c.previous.unfold()
	}
	return slices.ContainsFunc(c.decisions, func(d verdictRec) bool {
		if d.pending == nil {
			return false
		}
		w, _ := m.ledger.get(workflowKey{c.session.key.tenant, sumOf(d.pending.workflow)})
		return granted(d.pending.status) || granted(w.status)
	})
}

// granted tells whether an approval of a status was given.
func granted(status string) bool { return status == statusApproved || status == statusConsumed }

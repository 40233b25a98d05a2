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

// recordApprovalStep notes a record of an approval in the timelines of the calls that it is
// about. It is no news of them: what they come to shows in the decision that
// follows.
func (m *machine) recordApprovalStep(f *fact, a events.Approval) {
	now := approvalSteps[a.Act]
	s, ok := m.sessions.peek(f.key)
	if now == noStep || a.Refused != "" || !ok {
		return
	}
	if c := s.callOfDecision(a.DecisionID); now == stepAsked && c != nil {
		c.addStep(now, f)
		return
	}
	workflow := boundID(a.WorkflowID)
	for _, c := range s.open {
		if workflow != "" && c.awaitedApproval().workflow == workflow && (now != stepAsked || !c.hasStep(now)) {
			c.addStep(now, f)
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

// recordConfirmation notes them where they belong by the log's order: both come before the
// invocation, which shows which call they were about.
func (c *call) recordConfirmation(f *fact) {
	if f.confirmation == nil {
		return
	}
	if c.binding = events.BindingInferred; f.confirmation.explicit {
		c.binding = events.BindingExplicit
	}
	for _, s := range [...]struct {
		step
		aaepsession.Message
	}{{stepAsked, f.confirmation.asked}, {stepApproved, f.confirmation.accepted}} {
		if s.Seq == 0 || len(c.timeline) >= maxTimeline {
			continue
		}
		i := len(c.timeline)
		for i > 0 && c.timeline[i-1].seq > s.Seq {
			i--
		}
		c.timeline = slices.Insert(c.timeline, i, newTimelineEntry(s.step, s.Seq, s.At, s.ID, f.protocol))
	}
}

// firstOwnSeq is the sequence of the first of a call's own messages; 0 if there is
// none. What a user was asked before it is not the call's.
func (c *call) firstOwnSeq() uint64 {
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

// checkAnnouncedApproval judges the announcement of a call.
func (m *machine) checkAnnouncedApproval(c *call, f *fact) {
	if f.kind != kindPre || !f.needsHuman || f.verdictClaim.verdict != events.Allow || f.approval.hasStatus(statusApproved) || m.isApprovedOnRecord(c) {
		return
	}
	if d := c.directVerdict().recorded; m.opts.fromRecording || d == nil || d.verdict != events.Allow {
		m.findings.reportCheckFinding("AH-C-042", c, f, findingFrom(f.eventID))
	}
}

// checkExecutedApproval judges the execution of a call that had been allowed.
func (m *machine) checkExecutedApproval(c *call, f *fact, st effectiveVerdict) {
	if c.needsHuman && !m.opts.fromRecording && st.recorded != nil && !m.isApprovedOnRecord(c) {
		m.findings.reportCheckFinding("AH-C-042", c, f, findingFrom(c.firstEvent(), f.eventID).withVerdict(st).withText("no approval is on record"))
	}
}

// isApprovedOnRecord tells whether one of the recorded verdicts on a call rests on an
// approval, or waited for one that was given since. A call without any is judged by
// those on the one that it tries again.
func (m *machine) isApprovedOnRecord(c *call) bool {
	for depth := 0; len(c.decisions) == 0 && c.retriedCall != nil && depth < maxRetryChain; depth++ {
		c = c.retriedCall.expand()
	}
	return slices.ContainsFunc(c.decisions, func(d recordedVerdict) bool {
		if d.approval == nil {
			return false
		}
		w, _ := m.approvalIndex.get(workflowKey{c.session.key.tenant, sumOf(d.approval.workflow)})
		return isGranted(d.approval.status) || isGranted(w.status)
	})
}

// isGranted tells whether an approval of a status was given.
func isGranted(status string) bool { return status == statusApproved || status == statusConsumed }

package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// effectiveVerdict is the verdict that stands for a call, and where it comes from.
type effectiveVerdict struct {
	verdict   events.Verdict        // "" if there is none
	recorded  *fact.RecordedVerdict // the recorded decision; nil if the verdict is only claimed
	decidedAt time.Time             // of a claimed verdict, if it says so
	inherited bool                  // from the call that this one tries again
}

// directVerdict is the verdict for this very call: the latest recorded decision counts.
// Without one, or against a later claim that the runtime's gates denied, what
// its events say counts: no publisher claims a denial that was not (AH-C-075).
//
// A call that AAEP says was invoked runs on the allow that was recorded before: what
// is decided when it is asked about once more is no verdict on what runs already.
func (x *details) directVerdict() effectiveVerdict {
	d := x.lastDecision()
	if before := x.decidedBefore(x.invokedSeq); before != nil && before.Verdict == events.Allow {
		d = before
	}
	if d == nil || (x.verdictClaim.Verdict == events.Deny && x.verdictClaim.Seq > d.Seq) {
		return effectiveVerdict{verdict: x.verdictClaim.Verdict, decidedAt: x.verdictClaim.DecidedAt}
	}
	return effectiveVerdict{verdict: d.Verdict, recorded: d}
}

// decidedBefore is the last decision before a place in the log, nil if there is none.
func (x *details) decidedBefore(seq uint64) *fact.RecordedVerdict {
	for i := len(x.decisions) - 1; i >= 0; i-- {
		if x.decisions[i].Seq < seq {
			return &x.decisions[i]
		}
	}
	return nil
}

// effectiveVerdict follows the retries back where the call has no recorded verdict of
// its own: what was denied or put off stays so under another id, but an allow
// counts only for the same tool and arguments.
func (c *call) effectiveVerdict() effectiveVerdict { return c.effectiveVerdictWithin(maxRetryChain) }

func (c *call) effectiveVerdictWithin(depth int) effectiveVerdict {
	own := c.directVerdict()
	if own.recorded != nil || c.retriedCall == nil || depth == 0 {
		return own
	}
	before := c.retriedCall.expand().effectiveVerdictWithin(depth - 1)
	if before.verdict == "" || (own.verdict != "" && before.verdict.Strictness() < own.verdict.Strictness()) {
		return own
	}
	if before.verdict == events.Allow && (c.retriedCall.tool != c.tool || fact.CompareArguments(&c.retriedCall.args, &c.args) == fact.ArgsDifferent) {
		return own
	}
	before.inherited = true
	return before
}

func (s effectiveVerdict) decisionID() string {
	if s.recorded == nil {
		return ""
	}
	return s.recorded.Id
}

// decisionFor is the decision that an event of the given sequence could know:
// the last one before it, else the first.
func (x *details) decisionFor(seq uint64) *fact.RecordedVerdict {
	for i := len(x.decisions) - 1; i >= 0; i-- {
		if x.decisions[i].Seq < seq {
			return &x.decisions[i]
		}
	}
	if len(x.decisions) > 0 {
		return &x.decisions[0]
	}
	return nil
}

// lastDecision is the verdict that counts: the latest one recorded.
func (x *details) lastDecision() *fact.RecordedVerdict {
	if n := len(x.decisions); n > 0 {
		return &x.decisions[n-1]
	}
	return nil
}

func (x *details) isUndecided() bool {
	switch x.directVerdict().verdict {
	case events.Allow, events.Deny:
		return false
	}
	return true
}

// decidedAncestor is the call in a chain of retries with the verdict that stands: no number of
// retries takes it out of reach.
func (c *call) decidedAncestor() *call {
	for c.directVerdict().verdict == "" && c.retriedCall != nil {
		c = c.retriedCall.expand()
	}
	return c
}

// nativeVerdict is a verdict as AgentHook can say it.
func nativeVerdict(v events.Verdict) events.Verdict {
	if v == events.Defer {
		return events.Ask
	}
	return v
}

// awaitedApproval is the approval that the call waits for.
func (x *details) awaitedApproval() fact.Approval {
	if d := x.lastDecision(); d != nil && d.Approval != nil {
		return *d.Approval
	}
	return x.pendingApproval.ValueOrZero()
}

// approvedBy reports whether an approval is for what the call waits for
// (AH-C-104) and was given in time (AH-C-103).
func (x *details) approvedBy(a fact.Approval) bool {
	want := x.awaitedApproval()
	inTime := want.ExpiresAt.IsZero() || a.DecidedAt.IsZero() || !a.DecidedAt.After(want.ExpiresAt)
	return a.Status == fact.StatusApproved && inTime &&
		agreeIfKnown(a.Workflow, want.Workflow) && agreeIfKnown(a.Action, want.Action)
}

// approvalDetail says why an approval does not count.
func approvalDetail(c *call, a fact.Approval) string {
	want := c.awaitedApproval()
	switch {
	case a.Status == "" || a.Status == fact.StatusPending:
		return ""
	case a.Status != fact.StatusApproved:
		return caseApprovalRefused
	case !agreeIfKnown(a.Workflow, want.Workflow) || !agreeIfKnown(a.Action, want.Action):
		return caseApprovalMismatch
	case c.approvedBy(a):
		return caseApprovalUnrecorded
	}
	return caseApprovalLate
}

func agreeIfKnown(a, b string) bool { return a == "" || b == "" || a == b }

// executionStart is when the execution began, as far as can be said: the producer's
// claim if it is not after its report, an announcement that says so, or the report.
func (x *details) executionStart(f *fact.Fact) time.Time {
	switch {
	case !f.StartedAt.IsZero() && !f.StartedAt.After(f.At):
		return f.StartedAt
	case x.hasPre && x.preProtocol == f.Protocol && rowOf(f.Protocol).announcesStart:
		return x.preAt
	}
	return f.At
}

// admissionStage says what is known of a call before it ran: only what a recorded allow
// is about was admitted.
func (x *details) admissionStage(verdict effectiveVerdict) string {
	switch {
	case verdict.recorded != nil && verdict.verdict == events.Allow:
		return "admitted"
	case verdict.recorded != nil || x.hasRequest:
		return "requested"
	}
	return "announced"
}

package correlation

import (
	"math"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// effectiveVerdict is the verdict that counts for a call, and its origin.
type effectiveVerdict struct {
	verdict   events.Verdict        // "" if there is none
	recorded  *fact.RecordedVerdict // nil if the verdict is only claimed
	decidedAt time.Time             // of a claimed verdict; zero if it has no time
	inherited bool                  // from the call that this one retries
}

// directVerdict is the verdict on the call itself, without its retries. The latest recorded
// decision counts. The verdict that events claim counts if no decision is recorded, or if it
// is a denial by the runtime's own gates after a decision that denies nothing: a publisher gains nothing by a false denial
// (AH-C-075).
//
// A call that AAEP reports as invoked runs on the allow recorded before. A later decision does
// not change the verdict of what runs already.
func (x *details) directVerdict() effectiveVerdict {
	d := x.lastDecision()
	if before := x.decidedBefore(x.invokedSeq); before != nil && before.Verdict == events.Allow {
		d = before
	}
	if d == nil || (d.Verdict != events.Deny && x.verdictClaim.Verdict == events.Deny && x.verdictClaim.Seq > d.Seq) {
		return effectiveVerdict{verdict: x.verdictClaim.Verdict, decidedAt: x.verdictClaim.DecidedAt}
	}
	return effectiveVerdict{verdict: d.Verdict, recorded: d}
}

// decidedBefore is the latest decision before a sequence that counts, nil if there is none. An allow that
// binds no arguments, such as one in AAEP, lifts no ask, defer or deny of arguments that came before it.
func (x *details) decidedBefore(seq uint64) (last *fact.RecordedVerdict) {
	for i := len(x.decisions) - 1; i >= 0; i-- {
		switch d := &x.decisions[i]; {
		case d.Seq >= seq:
		case last == nil:
			if last = d; d.Verdict != events.Allow || d.ArgsDigest != "" {
				return d
			}
		case d.ArgsDigest != "" && d.Verdict != events.Allow:
			return d
		case d.ArgsDigest != "":
			return last
		}
	}
	return last
}

// allowsArguments reports whether a verdict may be for the arguments of the request or announcement. An
// allow that binds none is not if the latest decision on them is no allow.
func (x *details) allowsArguments(verdict effectiveVerdict) bool {
	if d := verdict.recorded; d == nil || d.Verdict != events.Allow || d.ArgsDigest != "" {
		return true
	}
	for _, d := range slices.Backward(x.decisions) {
		if d.ArgsDigest != "" && fact.CompareToDecision(&x.args, d.ArgsDigest) != fact.ArgsDifferent {
			return d.Verdict == events.Allow
		}
	}
	return true
}

// effectiveVerdict is the direct verdict, or the verdict of the call that this one retries if
// no verdict is recorded for this one. A recorded deny, ask or defer holds under every id, against
// a milder claim, and so does a claimed denial after a decision on record; an allow holds only for the
// same tool and arguments. If nothing is on record, the claim of this call counts: it is the answer to
// the next attempt.
func (c *call) effectiveVerdict() effectiveVerdict { return c.effectiveVerdictWithin(maxRetryChain) }

func (c *call) effectiveVerdictWithin(depth int) effectiveVerdict {
	own := c.directVerdict()
	if own.recorded != nil || c.retriedCall == nil || depth == 0 {
		return own
	}
	before := c.retriedCall.expand().effectiveVerdictWithin(depth - 1)
	if before.verdict == "" || (own.verdict != "" && (!c.retriedCall.isOnRecord() || before.verdict.Strictness() < own.verdict.Strictness())) {
		return own
	}
	if before.verdict == events.Allow && (c.retriedCall.tool != c.tool || fact.CompareArguments(&c.retriedCall.args, &c.args) == fact.ArgsDifferent) {
		return own
	}
	before.inherited = true
	return before
}

// nearestOnRecord is the call if decisions on it are recorded, else the nearest call that it retries of
// which that is so. If there is none within maxRetryChain, it is the last call that was looked at.
func (c *call) nearestOnRecord() *call {
	for depth := 0; len(c.decisions) == 0 && c.retriedCall != nil && depth < maxRetryChain; depth++ {
		c = c.retriedCall.expand()
	}
	return c
}

// isOnRecord reports whether a decision on the call, or on a call that it retries, is recorded. A chain
// longer than maxRetryChain counts as recorded: a number of claims outlasts no decision.
func (c *call) isOnRecord() bool {
	nearest := c.expand().nearestOnRecord()
	return len(nearest.decisions) > 0 || nearest.retriedCall != nil || nearest.wasOnRecord
}

func (s effectiveVerdict) decisionID() string {
	if s.recorded == nil {
		return ""
	}
	return s.recorded.ID
}

// decisionFor is the decision that an event with a sequence can refer to: the last one before
// it, else the first.
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

// lastDecision is the latest recorded decision that counts, nil if there is none.
func (x *details) lastDecision() *fact.RecordedVerdict { return x.decidedBefore(math.MaxUint64) }

func (x *details) isUndecided() bool {
	switch x.directVerdict().verdict {
	case events.Allow, events.Deny:
		return false
	}
	return true
}

// decidedAncestor is the nearest call with a direct verdict, from c back through its retries.
// Linking a retry with it keeps the verdict within maxRetryChain, however many retries follow.
func (c *call) decidedAncestor() *call {
	for c.directVerdict().verdict == "" && c.retriedCall != nil {
		c = c.retriedCall.expand()
	}
	return c
}

// nativeVerdict is a verdict in AgentHook's terms, which have no defer.
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

// approvedBy reports whether an approval is the one that the call waits for (AH-C-104) and was
// given in time (AH-C-103).
func (x *details) approvedBy(a fact.Approval) bool {
	want := x.awaitedApproval()
	inTime := want.ExpiresAt.IsZero() || a.DecidedAt.IsZero() || !a.DecidedAt.After(want.ExpiresAt)
	return a.Status == fact.StatusApproved && inTime &&
		agreeIfKnown(a.Workflow, want.Workflow) && agreeIfKnown(a.Action, want.Action)
}

// approvalCase is the case of the finding that an approval does not count.
func approvalCase(c *call, a fact.Approval) string {
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

// executionStart is the best known start of an execution: the producer's claim unless it is
// after its report, else an announcement that announces the start, else the claimed end minus the
// claimed duration. Without a duration, known is false: it began at that time or before.
func (x *details) executionStart(f *fact.Fact) (start time.Time, known bool) {
	switch {
	case !f.StartedAt.IsZero() && !f.StartedAt.After(f.At):
		return f.StartedAt, true
	case x.hasPre && x.preProtocol == f.Protocol && rowOf(f.Protocol).announcesStart:
		return x.preAt, true
	}
	took := min(f.ProducerTimes.DurationMS, math.MaxInt64/int64(time.Millisecond))
	return f.ClaimedEnd().Add(-time.Duration(took) * time.Millisecond), f.ProducerTimes.HasDuration
}

// admissionStage says what the log has of a call before it ran. Only the call of a recorded
// allow was admitted.
func (x *details) admissionStage(verdict effectiveVerdict) string {
	switch {
	case verdict.recorded != nil && verdict.verdict == events.Allow:
		return "admitted"
	case verdict.recorded != nil || x.hasRequest:
		return "requested"
	}
	return "announced"
}

package replay

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// Difference is a field in which a replayed decision differs from the recorded one.
type Difference struct {
	Field    string `json:"field"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: recorded %s, replayed %s", d.Field, d.Recorded, d.Replayed)
}

// Compare returns the differences between a recorded decision and its replay with the same
// policies. The effect of approval workflows is taken from the record: its reasons of evaluator
// approval. Digests are compared if they are made with one key.
func Compare(recorded events.Decision, replayed events.Decision) (list []Difference) {
	differ := func(field, a, b string) {
		if a != b {
			list = append(list, Difference{field, a, b})
		}
	}
	want, possible := afterApproval(recorded, replayed.Verdict)
	if !possible || want != recorded.Verdict {
		differ("verdict", string(recorded.Verdict), string(want))
	}
	differ("mode", recorded.Mode, replayed.Mode)
	differ("would", string(recorded.Would), string(replayed.Would))
	own, _ := splitApprovals(recorded.Reasons)
	differ("reasons", reasonNames(own), reasonNames(replayed.Reasons))
	differ("policy", policyName(recorded), policyName(replayed))
	differ("tool", recorded.Tool, replayed.Tool)
	differ("tool_call_id", recorded.ToolCallID, replayed.ToolCallID)
	differ("session", recorded.Session, replayed.Session)
	if digest.ComparableForm(recorded.RequestDigest) == digest.ComparableForm(replayed.RequestDigest) {
		differ("request_digest", recorded.RequestDigest, replayed.RequestDigest)
		differ("args_digest", recorded.ArgsDigest, replayed.ArgsDigest)
	}
	return list
}

func policyName(d events.Decision) string {
	if d.Policy == nil || d.Policy.Name == "" {
		return "none"
	}
	return d.Policy.Name
}

// splitApprovals separates the approvals' reasons from the others.
func splitApprovals(reasons []events.Reason) (own, approvals []events.Reason) {
	for _, r := range reasons {
		if r.Evaluator == approval.EvaluatorName {
			approvals = append(approvals, r)
		} else {
			own = append(own, r)
		}
	}
	return own, approvals
}

func reasonNames(reasons []events.Reason) string {
	list := make([]string, len(reasons))
	for i, r := range reasons {
		list[i] = r.Evaluator + ":" + r.Code
		if r.Path != "" {
			list[i] += "@" + r.Path
		}
		if r.Policy != "" {
			list[i] += "(" + r.Policy + ")"
		}
	}
	return fmt.Sprint(list)
}

// approvalEffects maps the approvals' reasons to their effect on a verdict. Of several in one
// decision the last decides. Reasons that are not listed change nothing.
var approvalEffects = map[string]map[events.Verdict]events.Verdict{
	approval.ReasonGranted: {events.Ask: events.Allow, events.Allow: events.Allow}, // the last after evasion
	approval.ReasonDenied:  {events.Ask: events.Deny, events.Defer: events.Deny, events.Allow: events.Deny},
	approval.ReasonBacklog: {events.Ask: events.Deny, events.Defer: events.Deny, events.Allow: events.Deny},
	approval.ReasonEvasion: {events.Allow: events.Ask},
	approval.ReasonPending: {events.Allow: events.Ask},
}

// afterApproval applies the recorded approval reasons to a verdict. They cannot occur beside a
// deny.
func afterApproval(recorded events.Decision, v events.Verdict) (events.Verdict, bool) {
	_, approvals := splitApprovals(recorded.Reasons)
	if len(approvals) > 0 && v == events.Deny {
		return v, false
	}
	for _, r := range approvals {
		if next, changes := approvalEffects[r.Code][v]; changes {
			v = next
		}
	}
	return v, true
}

// asksLike reports whether two results need the same approval. One that was given answers no ask of
// another rule, and none on other terms.
func (r Result) asksLike(o Result) bool {
	return slices.Equal(r.asks, o.asks) && reflect.DeepEqual(r.terms, o.terms)
}

// Outcome is what other policies would have decided.
type Outcome struct {
	Verdict events.Verdict
	Reasons []events.Reason
	// Unknown, if not empty, lists why the outcome cannot be determined; Verdict is then "".
	Unknown []string
}

// Changed reports whether the verdict would have been different, had the policies been enforced
// both times.
func (o Outcome) Changed(recorded events.Decision) bool {
	return len(o.Unknown) == 0 && o.Verdict != recorded.EnforcedVerdict()
}

// CandidateOutcome returns what a candidate would have decided, from the replay with the old
// policies (base) and of the Enforced record with the candidate. If base differs from the recorded decision, something
// that is not in the record decided, and the outcome is unknown.
func CandidateOutcome(recorded events.Decision, base, candidate Result) Outcome {
	if len(base.Unknown) > 0 {
		return Outcome{Unknown: base.Unknown}
	}
	if diff := Compare(recorded, base.Decision); len(diff) > 0 {
		return Outcome{Unknown: []string{"the record does not hold all that decided: " + diff[0].String()}}
	}
	if len(candidate.Unknown) > 0 {
		return Outcome{Unknown: candidate.Unknown}
	}
	d := candidate.Decision
	_, approvals := splitApprovals(recorded.Reasons)
	v, _ := afterApproval(recorded, d.Verdict)
	switch {
	case d.Verdict == base.Decision.Verdict && (v == d.Verdict || candidate.asksLike(base)): // the effect of approvals is then the same, too
		return Outcome{Verdict: v, Reasons: slices.Concat(d.Reasons, approvals)}
	case len(approvals) == 0, d.Verdict == events.Deny:
		return Outcome{Verdict: d.Verdict, Reasons: d.Reasons}
	case d.Verdict == events.Allow && !hasReason(recorded, approval.EvaluatorName, approval.ReasonEvasion):
		return Outcome{Verdict: d.Verdict, Reasons: d.Reasons}
	}
	return Outcome{Unknown: []string{"an approval workflow decided, and what reviewers would have said under other policies is not known"}}
}

package aump

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// refusedState is the answer to a request that is not valid.
func refusedState(path string, ref wire.Ref) readState {
	named, _ := wire.NormaliseHash(ref.Hash)
	return readState{
		ref:    wire.ResponseRef{ID: ref.ID, Hash: named, Version: replyVersion(ref)},
		result: Result{wire.Denied, []Finding{{wire.Denied, CodeSchemaInvalid, path}}},
	}
}

// replyVersion is the version of the mandate that a reply names: the one that the
// request named, known or not.
func replyVersion(ref wire.Ref) string { return cmp.Or(ref.Version, wire.Version) }

// approvalWindow is how long the mandate lets the principal think: 0 if it does not
// say, and never 0 if it does.
func approvalWindow(m *mandate.Mandate, now time.Time) time.Duration {
	seconds := m.Escalation.ApprovalTimeout
	left := m.ExpiresAt.Sub(now)
	switch {
	case seconds == nil:
		return 0
	case *seconds > int64(left/time.Second): // also where a Duration cannot hold it
		return left
	}
	return max(1, time.Duration(*seconds)*time.Second)
}

// contactChannel is the first way to reach the principal that reaches somebody.
func contactChannel(r Result, m *mandate.Mandate) string {
	if r.Decision == wire.RequiresEscalation {
		for _, mode := range m.Escalation.ContactModes {
			if mode != "none" {
				return mode
			}
		}
	}
	return ""
}

// Reply implements call.Protocol: the action evaluation response. Where the
// decision is stricter than the mandate's own, the response says so: with the
// code that AUMP has for what the mandate's principal did not allow, and ours.
func (p Evaluator) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	o, ok := c.ProtocolState.(readState)
	if !ok { // nobody looked, or it is not to be trusted
		o.ref.Version = wire.Version
	}
	native := p.NativeVerdict(d.Verdict)
	if !ok && native == wire.Allowed {
		return nil, errors.New("aump: nothing was evaluated that could be allowed")
	}
	switch {
	case native == o.result.Decision:
	case native == wire.Allowed: // approved: what the mandate wanted a review for was reviewed
		o.result = Result{Decision: native}
	default:
		o.result = tightenedResult(native, d, reason)
	}
	b, err := wire.Response{
		Ref: o.ref, Decision: o.result.Decision, ReasonCodes: o.result.ReasonCodes(), Paths: o.result.Paths(),
		Summary: summaryText(o.result), RequiredEscalation: requiredEscalation(o, d),
	}.Encode()
	if err != nil {
		return nil, fmt.Errorf("aump: rendering the reply: %w", err)
	}
	return b, nil
}

// tightenedCodes are AUMP's codes for a decision that the mandate alone did not
// make.
var tightenedCodes = map[string]string{wire.Denied: CodeScope, wire.RequiresEscalation: CodeEscalation}

// tightenedResult is the result of a verdict that somebody else made. A failure of the
// service's is not dressed up as a violation of the mandate.
func tightenedResult(decision string, d events.Decision, reason string) Result {
	r := Result{Decision: decision}
	failed := slices.ContainsFunc(d.Reasons, func(x events.Reason) bool { return x.Evaluator == serviceEvaluator && x.Code == reason })
	if !failed {
		r.addFinding(decision, tightenedCodes[decision], "$.proposed_action")
	}
	if isReasonCode(reason) {
		r.addFinding(decision, reason, "$.proposed_action")
	}
	return r
}

// serviceEvaluator is the name under which package admission gives reasons.
const serviceEvaluator = "admission"

// isReasonCode reports whether a reason is one, and not a policy's message to people.
func isReasonCode(reason string) bool {
	return reason != "" && len(reason) <= 64 && strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// requiredEscalation says whom to ask, what, and how long the approval stays open.
func requiredEscalation(o readState, d events.Decision) *wire.RequiredEscalation {
	if o.result.Decision != wire.RequiresEscalation {
		return nil
	}
	e := &wire.RequiredEscalation{
		Channel: o.channel,
		Prompt:  "An action under mandate " + o.ref.ID + " waits for a trusted review: " + strings.Join(o.result.ReasonCodes(), ", ") + ".",
	}
	if d.Approval != nil {
		e.ExpiresAt = d.Approval.ExpiresAt.String()
	}
	return e
}

// summaryText is for people. It holds nothing of the request or the mandate.
func summaryText(r Result) string {
	switch r.Decision {
	case wire.Allowed:
		return "Allowed under the mandate."
	case wire.RequiresEscalation:
		return "Ask for a trusted review before going on: " + strings.Join(r.ReasonCodes(), ", ") + "."
	}
	return "Denied: " + strings.Join(r.ReasonCodes(), ", ") + "."
}

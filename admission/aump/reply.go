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

// refusedState is the answer to an invalid request.
func refusedState(path string, ref wire.Ref) readState {
	named, _ := wire.NormaliseHash(ref.Hash)
	return readState{
		ref:    wire.ResponseRef{ID: ref.ID, Hash: named, Version: replyVersion(ref)},
		result: Result{wire.Denied, []Finding{{wire.Denied, CodeSchemaInvalid, path}}},
	}
}

// replyVersion is the mandate version in a reply: the one that the request named, known or not.
func replyVersion(ref wire.Ref) string { return cmp.Or(ref.Version, wire.Version) }

// approvalWindow is how long the mandate lets the principal decide: 0 if not stated, and never
// 0 if stated.
func approvalWindow(m *mandate.Mandate, now time.Time) time.Duration {
	seconds := m.Escalation.ApprovalTimeout
	left := m.ExpiresAt.Sub(now)
	switch {
	case seconds == nil:
		return 0
	case *seconds > int64(left/time.Second): // also if a Duration cannot hold it
		return left
	}
	return max(1, time.Duration(*seconds)*time.Second)
}

// contactChannel is the mandate's first usable contact mode.
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

// Reply implements call.Protocol: the action evaluation response. Where the decision is
// stricter than the mandate's own, the response has AUMP's code for what the principal did not
// allow, and Countersign's.
func (p Evaluator) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	o, ok := c.ProtocolState.(readState)
	if !ok { // there was no evaluation, or it is not trustworthy
		o.ref.Version = wire.Version
	}
	native := p.NativeVerdict(d.Verdict)
	if !ok && native == wire.Allowed {
		return nil, errors.New("aump: nothing was evaluated that could be allowed")
	}
	switch {
	case native == o.result.Decision:
	case native == wire.Allowed: // approved: the review that the mandate demands took place
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

// tightenedCodes are AUMP's codes for a decision that the mandate alone did not cause.
var tightenedCodes = map[string]string{wire.Denied: CodeScope, wire.RequiresEscalation: CodeEscalation}

// tightenedResult is the result of a verdict that another evaluator made stricter. A failure of
// the service is not reported as a violation of the mandate.
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

// isReasonCode reports whether a reason is a code, and not a policy's message.
func isReasonCode(reason string) bool {
	return reason != "" && len(reason) <= 64 && strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// requiredEscalation states whom to ask, what, and how long the approval stays open.
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

// summaryText is a summary for people. It holds nothing of the request or the mandate.
func summaryText(r Result) string {
	switch r.Decision {
	case wire.Allowed:
		return "Allowed under the mandate."
	case wire.RequiresEscalation:
		return "Ask for a trusted review before going on: " + strings.Join(r.ReasonCodes(), ", ") + "."
	}
	return "Denied: " + strings.Join(r.ReasonCodes(), ", ") + "."
}

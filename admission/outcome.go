package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
)

// concludeDecision makes the verdict and all that follows from it: the strictest verdict, every reason,
// its lifetime, the approval workflow and the receipt's claims.
func (out *Outcome) concludeDecision(native call.Opinion, policies policy.Result, in Inputs) {
	d := &out.Decision
	d.Verdict = events.Strictest(native.Verdict, policies.Verdict)
	d.NativeVerdict = out.protocol.NativeVerdict(d.Verdict)
	d.Reasons = slices.Concat(recordableReasons(native), policies.Reasons)
	out.explanation = withWarnings(explainVerdict(d.Verdict, native, policies), d.Verdict, policies)
	lifetime := verdictLifetime(d.Verdict, native, policies, in.Now)
	switch d.Verdict {
	case events.Allow:
		d.ExpiresAt = events.At(in.Now.Add(lifetime))
	case events.Ask, events.Defer:
		d.ExpiresAt = events.At(in.Now.Add(lifetime))
		d.Approval = out.newApprovalRef(in)
	}
	lifetime = out.applyApprovals(native, policies, in, lifetime)
	out.fillClaims(in, lifetime)
}

// recordableReasons returns the protocol's reasons for the record. For a request that is not JSON the
// record has the codes and no paths: a path quotes names of members, and an erasure of the
// session would not reach the record, because it names no session.
func recordableReasons(native call.Opinion) []events.Reason {
	if !native.Unread {
		return native.Reasons
	}
	reasons := slices.Clone(native.Reasons)
	for i := range reasons {
		reasons[i].Path = ""
	}
	return reasons
}

// verdictLifetime is how long a verdict is valid, or stays open. The lifetime of policies takes
// precedence over the protocol's, but for an ask of the protocol alone. No ask stays open for longer
// than the protocol's window, and no verdict outlives what the protocol's opinion rests on, except
// for the minimum lifetime of a receipt.
func verdictLifetime(v events.Verdict, native call.Opinion, policies policy.Result, now time.Time) time.Duration {
	asks := v == events.Ask || v == events.Defer
	d := receipt.DefaultLifetime
	switch {
	case asks && policies.Approval.Lifetime > 0:
		d = policies.Approval.Lifetime
	case policies.ExpiresAfter > 0 && (!asks || policies.Verdict != events.Allow):
		d = policies.ExpiresAfter
	case asks && native.ApprovalWindow > 0:
		d = native.ApprovalWindow
	case asks:
		d = DefaultApprovalLifetime
	}
	if asks && native.ApprovalWindow > 0 {
		d = min(d, native.ApprovalWindow)
	}
	if !native.NotAfter.IsZero() {
		d = min(d, native.NotAfter.Sub(now))
	}
	return max(receipt.MinLifetime, min(d, receipt.MaxLifetime))
}

// fillClaims fills the claims of the receipt. Verdicts other than allow get one too: it proves
// the answer and permits nothing.
func (out *Outcome) fillClaims(in Inputs, lifetime time.Duration) {
	d := out.Decision
	out.Claims = receipt.Claims{
		V: receipt.Version, DecisionID: d.DecisionID, Tenant: d.Tenant, Source: d.Source, Session: d.Session, ToolCallID: d.ToolCallID,
		Tool: d.Tool, Verdict: d.Verdict, Mode: d.Mode, Mandate: d.Mandate, IssuedAt: d.DecidedAt, ExpiresAt: events.At(in.Now.Add(lifetime)), Nonce: in.Nonce,
	}
	if d.Policy != nil {
		out.Claims.Policy = *d.Policy
	}
	if err := out.Claims.BindArguments(in.Salt, out.call.ArgsCanonical); err != nil {
		panic(err) // cannot happen: Inputs.isComplete checked the salt
	}
}

// ShareNonce makes the receipt of an allow share its nonce with the other receipts of one
// allowance, of which an executor uses one. until is when the last of them expires, at least
// receipt.MinLifetime after the decision. It must be called before the receipt is issued.
func (out *Outcome) ShareNonce(nonce string, until time.Time) {
	out.Claims.Nonce, out.Claims.UseUntil = nonce, events.At(until)
	if out.Claims.ExpiresAt.After(until) {
		out.Claims.ExpiresAt, out.Decision.ExpiresAt = events.At(until), events.At(until)
	}
}

// newApprovalRef opens the approval of an ask or defer. Its ids are derived: the workflow from
// the decision, the action from what is proposed, so that an equivalent retry names the same
// action.
func (out *Outcome) newApprovalRef(in Inputs) *events.ApprovalRef {
	d := out.Decision
	return &events.ApprovalRef{
		WorkflowID: "wf-" + d.DecisionID, Status: "pending", ActionID: out.actionID(in),
		RequestedAt: d.DecidedAt, ExpiresAt: d.ExpiresAt, ResumePolicy: cmp.Or(out.ruling.Policies.Approval.Resume, approval.ResumeSameEvent),
	}
}

func (out *Outcome) actionID(in Inputs) string {
	keys, err := approval.KeysOf(out.approvalAction(), in.digest)
	if err != nil {
		panic(err) // cannot happen: everything in it came out of strictjson
	}
	return keys.ActionID
}

// explainVerdict explains the verdict without revealing a rule. It returns the code of the
// protocol's own evaluator, a code that is the same for every policy, the policy's own message,
// or only that a policy decided. The decision record names the rule.
func explainVerdict(verdict events.Verdict, native call.Opinion, policies policy.Result) string {
	switch {
	case native.DecidingCode != "" && native.Verdict == verdict:
		return native.DecidingCode
	case policies.Message != "":
		return policies.Message
	case len(policies.Reasons) > 0 && generalCodes[policies.Reasons[0].Code] && policies.Reasons[0].Policy == "" && policies.Reasons[0].Action == "":
		return policies.Reasons[0].Code
	case verdict == events.Allow && len(policies.Reasons) > 0 && policies.Reasons[0].Action == policy.ActionObserve:
		return observedText
	}
	return genericTexts[verdict]
}

// maxWarnings and maxWarningBytes bound Warnings: clients read 16 KiB of headers, or 100 of them, and the receipt and its
// key need their part.
const (
	maxWarnings     = 16
	maxWarningBytes = 4 * policy.MaxMessage // one message in any script
)

// Warnings are the messages of policies that only warn, for the caller, and how many more there are. They do not affect
// the verdict. None of them contains control characters.
func (out *Outcome) Warnings() []string {
	all, size := out.ruling.Policies.Warnings, 0
	for i, text := range all {
		size += len(text)
		if i == maxWarnings || size > maxWarningBytes {
			return append(slices.Clone(all[:i]), fmt.Sprintf("and %d more", len(all)-i))
		}
	}
	return all
}

// withWarnings adds the warnings to the explanation of an allow. The explanation of a refusal
// has no warnings.
func withWarnings(text string, verdict events.Verdict, policies policy.Result) string {
	if verdict != events.Allow || len(policies.Warnings) == 0 {
		return text
	}
	return text + "; warning: " + strings.Join(policies.Warnings, "; ")
}

// generalCodes are the codes of verdicts that no rule gives.
var generalCodes = map[string]bool{
	policy.CodeNoPolicy: true, policy.CodeNoMatch: true, policy.CodePolicyError: true, policy.CodePolicyMemory: true, policy.CodePolicyDeadline: true,
	policy.CodeInvalidToolName: true, policy.CodeInvalidArgName: true, policy.CodeInvalidOperand: true, policy.CodeCounters: true,
}

// observedText stands in place of the text of an allow that the policies would not have given.
const observedText = "not_enforced"

var genericTexts = map[events.Verdict]string{
	events.Allow: "allowed_by_policy", events.Ask: "approval_required", events.Defer: "decision_deferred", events.Deny: "denied_by_policy",
}

// Fail turns the outcome into a deny for a reason of the service's own, such as
// CodeAuditUnavailable. The outcome then has no receipt and nothing to approve.
func (out *Outcome) Fail(code string) {
	d := &out.Decision
	d.Verdict, d.NativeVerdict = events.Deny, ""
	if out.protocol != nil {
		d.NativeVerdict = out.protocol.NativeVerdict(events.Deny)
	}
	d.Reasons = append(d.Reasons, events.Reason{Evaluator: EvaluatorName, Code: code})
	d.Approval, d.ExpiresAt, d.ReceiptHash = nil, events.Time{}, ""
	out.Claims, out.NoReceipt = receipt.Claims{}, true
	out.explanation, out.ruling.Failed = code, code
}

// RefuseTooLarge refuses a request that is too large to be kept. small replaces the request:
// the record refers to the message beside it in the log. in are the inputs of the decision.
func (out *Outcome) RefuseTooLarge(in Inputs, small []byte) {
	out.Fail(CodeTooLarge)
	in.Secret = out.secret
	out.Decision.RequestDigest = in.digest(small)
	out.Malformed, out.Consumption = true, Consumption{}
	out.ErrorCode, out.ErrorDescription = microError(events.Reason{Code: CodeTooLarge})
}

// AccompanyingEvents returns the messages that the protocol demands on the log beside the decision, in
// order; none for most protocols. The service signs them like the decision, appends them right
// after it, and replies only when they are durable too. It must be called after the last change
// of Decision. On an error, call Fail with CodeInternal.
func (out *Outcome) AccompanyingEvents() (list []call.AccompanyingEvent, err error) {
	writer, ok := out.protocol.(call.EventWriter)
	if !ok {
		return nil, nil
	}
	if !runRecovered(func() { list, err = writer.AccompanyingEvents(out.call, out.Decision, out.ruling) }) {
		return nil, fmt.Errorf("admission: the accompanying events of protocol %s cannot be rendered", out.Decision.Protocol)
	}
	return list, err
}

// Reply returns the body of the reply. On an error, send Refusal(CodeInternal).
func (out *Outcome) Reply() (body []byte, err error) {
	if out.protocol == nil {
		return Refusal(out.explanation), nil
	}
	render := func() { body, err = out.protocol.Reply(out.call, out.Decision, out.explanation) }
	if ruled, ok := out.protocol.(call.RulingReplier); ok {
		render = func() { body, err = ruled.ReplyWithRuling(out.call, out.Decision, out.ruling) }
	}
	if !runRecovered(render) {
		return nil, fmt.Errorf("admission: the reply of protocol %s cannot be rendered", out.Decision.Protocol)
	}
	return body, err
}

// Refusal is the reply body where the protocol cannot give its own. code must be one of the
// constants of this package.
func Refusal(code string) []byte {
	return []byte(`{"decision":"deny","reason":"` + code + `"}`)
}

// microError returns the code and description of the micro error headers.
func microError(r events.Reason) (code, description string) {
	code, special := microCodes[r.Code]
	if !special {
		code = "400"
	}
	if r.Path == "" {
		return code, r.Code
	}
	return code, r.Code + " at " + r.Path
}

var microCodes = map[string]string{
	CodeUnknownTenant: "403", CodeUnknownSource: "403", CodeUnknownProtocol: "404", CodeInternal: "500", CodeTooLarge: "413",
}

// Asked returns what asks for an approval, the codes of evaluators and the rules of policies, and the
// terms of that approval.
func (out *Outcome) Asked() ([]string, approval.Terms) {
	a := approvalDecision{native: out.ruling.NativeOpinion, policies: out.ruling.Policies}
	return a.asks(), a.policies.Approval
}

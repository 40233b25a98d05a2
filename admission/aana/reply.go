package aana

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/schemas"
)

// refusedResult is the contract's answer to an invalid event. e is nil if the request is not
// even an object.
func refusedResult(e *wire.Event, blocker string, vs []schemas.Violation, reasons []events.Reason) Result {
	r := Result{
		Route: wire.Refuse, AANARoute: wire.Refuse, Blockers: []string{blocker}, Reasons: []string{reasonSchemaFailed},
		Event: EventView{ArgumentKeys: []string{}, SourceIDs: []string{}},
	}
	if blocker == CodeNormalizationFailed {
		r.Reasons, r.notNormalised = []string{reasonFailClosed, blocker}, true
	}
	if e != nil {
		r.Event = viewOf(e, newMasker(nil))
	}
	for _, v := range vs {
		r.Errors = append(r.Errors, ValidationError{dottedPath(v.Path), v.Keyword + ": " + v.Message})
	}
	for _, reason := range reasons {
		if !fromSchema[reason.Code] {
			r.Errors = append(r.Errors, ValidationError{dottedPath(reason.Path), reason.Code})
		}
	}
	return r
}

// fromSchema are the reason codes that stand for violations of the schema.
var fromSchema = map[string]bool{call.CodeSchemaInvalid: true, call.CodeUnknownVersion: true}

// Reply implements call.Protocol: the contract's envelope. Where the decision is stricter than
// the contract's own, route, blockers, gate and execution policy of the envelope show it.
func (Evaluator) Reply(c call.Call, d events.Decision, reason string) ([]byte, error) {
	o, ok := c.ProtocolState.(readState)
	if !ok {
		// There was no evaluation, or it is not trustworthy.
		o = readState{Result{Route: wire.Refuse, AANARoute: wire.Refuse, Blockers: []string{}, Reasons: []string{},
			Event: EventView{ArgumentKeys: []string{}, SourceIDs: []string{}}}, events.Allow, Result{}}
	}
	r := o.result
	if d.Verdict.Strictness() > o.verdict.Strictness() {
		r = r.withStricterVerdict(d, reason)
	}
	if d.Verdict == events.Allow && o.verdict != events.Allow {
		r = o.approved.withReason(reason)
	}
	e := r.Envelope()
	e.Approval = approvalBlock(d.Approval)
	e.Architecture.Audit.LatencyMS = latencyMillis(d)
	e.Architecture.SafeLog = e.Architecture.Audit
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("aana: rendering the reply: %w", err)
	}
	return b, nil
}

// withStricterVerdict returns the result with the final verdict. The caller's reason becomes a
// hard blocker if it is a code, and a reason if it is text. Neither names the rule that
// decided.
func (r Result) withStricterVerdict(d events.Decision, reason string) Result {
	r.Route = wire.Stricter(r.Route, routeOf(d.Verdict))
	code := reason
	r.Reasons = slices.Clone(r.Reasons)
	if !reasonCode.MatchString(reason) {
		code = tighteningCodes[d.Verdict]
		if reason != "" {
			r.Reasons = append(r.Reasons, reason)
		}
	}
	r.Reasons = append(r.Reasons, reasonConsolidated+":"+string(r.Route))
	r.Blockers = slices.Clone(r.Blockers)
	appendUnique(&r.Blockers, code)
	return r
}

// withReason adds the caller's reason to the contract's result for an approved call.
func (r Result) withReason(reason string) Result {
	r.Reasons = append(slices.Clone(r.Reasons), reason)
	return r
}

var reasonCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

const reasonConsolidated = "consolidated_stricter_route" // a tool policy was stricter than the contract; the route follows after a colon

// tighteningCodes are the hard blockers of a stricter verdict with text as its reason.
var tighteningCodes = map[events.Verdict]string{
	events.Ask: "approval_required", events.Defer: "decision_deferred", events.Deny: "denied_by_policy",
}

func approvalBlock(a *events.ApprovalRef) *Approval {
	if a == nil {
		return nil
	}
	return &Approval{
		Required: true, Status: a.Status, WorkflowID: a.WorkflowID, ActionID: a.ActionID, RequestedAt: a.RequestedAt, ExpiresAt: a.ExpiresAt,
		ResumePolicy: a.ResumePolicy,
	}
}

// latencyMillis is nil if the record has no time of receipt, or one after the decision.
func latencyMillis(d events.Decision) *float64 {
	if d.ReceivedAt.IsZero() || d.DecidedAt.Before(d.ReceivedAt.Time) {
		return nil
	}
	ms := math.Round(float64(d.DecidedAt.Sub(d.ReceivedAt.Time).Microseconds())) / 1000
	return &ms
}

// sensitiveKeys are parts of argument names that are not repeated.
var sensitiveKeys = []string{"api_key", "apikey", "auth_token", "bearer_token", "client_secret", "password", "private_account_id", "raw_token",
	"secret", "session_token", "token"}

const redactedKey = "[redacted_sensitive_key]"

// ArgumentKeys are the names of the arguments, sorted; sensitive names are masked. A name that
// is no identifier is masked too: it may be a value.
func ArgumentKeys(args map[string]any) []string {
	keys := []string{}
	for _, key := range slices.Sorted(maps.Keys(args)) {
		low := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(key)), "-", "_")
		if containsAny(low, sensitiveKeys) || len(key) > maxKey || !identifierPattern.MatchString(key) || isSecretText(key) {
			key = redactedKey
		}
		appendUnique(&keys, key)
		if len(keys) == maxKeys {
			break
		}
	}
	slices.Sort(keys)
	return keys
}

var identifierPattern = regexp.MustCompile(`^[\pL_$][\pL\pN_.$:\- ]*$`)

func fallbackID(i int) string { return "evidence_ref:" + strconv.Itoa(i+1) }

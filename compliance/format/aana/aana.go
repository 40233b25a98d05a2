// Package aana writes the audit records of AANA tool prechecks.
package aana

import (
	"slices"
	"strings"

	contract "github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/subject"
)

// DecisionEvents has the audit-safe decision events, AuditRecords the audit records.
var (
	DecisionEvents = encode.Format{Make: newDecisionEvents, About: about, Fields: fields}
	AuditRecords   = encode.Format{Make: newAuditRecords, About: about, Fields: fields}
)

const about = "decisions on AANA tool prechecks"

var fields = []encode.Field{
	{Names: []string{"route", "recommended_action", "aix_decision"}, From: "the native verdict"},
	{Names: []string{"gate_decision", "aix_score", "aix"}, From: "its row in the contract's table"},
	{Names: []string{"hard_blockers", "violation_codes"}, From: "the blocking reason codes of the contract's evaluator, else of the stricter tool policy. Empty for accept"},
	{Names: []string{"candidate_gate"}, From: "pass if nothing blocks"},
	{Names: []string{"missing_evidence", "evidence_refs", "evidence_freshness_failures", "public_audit_log_allowed", "public_claim_allowed"}, From: "blockers and codes; without the request nothing is public"},
	{Names: []string{"tool_category", "authorization_state", "risk_domain", "evidence_source_ids", "proposed_argument_keys"}, From: "the redacted request; null or empty without it"},
	{Names: []string{"mode"}, From: "`shadow` if the verdict is allow and the policies were only observed, else `enforce`"},
	{Names: []string{"latency_ms"}, From: "received to decided"},
	{Names: []string{"input_fingerprints"}, From: "the keyed digest of the arguments as `hmac_sha256`"},
	{Names: []string{"human_review_route"}, From: "for ask and defer; the reason is the first blocker"},
	{Names: []string{"countersign"}, From: "ours: the decision and its record"},
	{Names: []string{"authorization_report"}, From: "always null"},
}

// decisionReader pairs the decisions on AANA prechecks with their requests.
type decisionReader struct {
	out     *encode.Writer
	pending *encode.Requests
	write   func(decision) error
}

func newReader(w *encode.Writer, write func(decision) error) encode.Encoder {
	return &decisionReader{w, encode.NewRequests(w, subject.ProtoAANA), write}
}

func (e *decisionReader) Add(i encode.Item) error {
	return e.pending.Match(i.Record, func(d events.Decision, req encode.Request, _ bool) error {
		return e.write(newDecision(i, d, req.Body)) // without the request the line has fewer values
	})
}

func (e *decisionReader) End() error {
	e.pending.CountRemaining()
	return nil
}

// decision is what evidence holds of one decision under the contract.
type decision struct {
	events.Decision
	item     encode.Item
	body     map[string]any // of the request, redacted; nil if there is none
	route    wire.Route
	codes    []string // of the contract's evaluator
	blockers []string
}

func newDecision(i encode.Item, d events.Decision, body map[string]any) decision {
	a := decision{Decision: d, item: i, body: body, route: wire.Route(d.NativeVerdict), codes: []string{}, blockers: []string{}}
	if !slices.Contains(wire.Routes(), a.route) {
		a.route = wire.Route(contract.Evaluator{}.NativeVerdict(d.Verdict))
	}
	var others []string
	for _, r := range d.Reasons {
		switch {
		case r.Action != "": // without effect on the verdict
		case strings.HasPrefix(r.Evaluator, subject.ProtoAANA):
			a.codes = encode.AddOnce(a.codes, r.Code)
		default:
			others = encode.AddOnce(others, r.Code)
		}
	}
	if d.ObservedOnly() {
		a.codes = encode.AddOnce(a.codes, "not_enforced") // the route is none that the policies gave
	}
	if a.route == wire.Accept { // a reviewer's approval clears the blockers
		return a
	}
	for _, c := range a.codes {
		switch {
		case contract.IsBlocker(c):
			a.blockers = encode.AddOnce(a.blockers, c)
		case !contract.IsReason(c):
			a.blockers = encode.AddOnce(a.blockers, contract.CodeSchemaFailed)
		}
	}
	if len(a.blockers) == 0 && !slices.Contains(a.codes, "runtime_recommended_stricter_route") {
		a.blockers = append(a.blockers, others...) // a tool policy was stricter than the contract
	}
	return a
}

func passOrFail(pass bool) string {
	if pass {
		return "pass"
	}
	return "fail"
}

// finalGate is the final gate; candidateGate is the contract's own. Everything that the contract does
// not accept has a blocker (aana.md 2, step 3).
func (a decision) finalGate() string { return passOrFail(a.route == wire.Accept) }

func (a decision) candidateGate() string { return passOrFail(len(a.blockers) == 0) }

func (a decision) blockersContaining(marks ...string) []string {
	out := []string{}
	for _, b := range a.blockers {
		if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(b, m) }) {
			out = append(out, b)
		}
	}
	return out
}

// missingEvidence lists the blockers about missing evidence (aana.md 1.3).
func (a decision) missingEvidence() []string {
	return a.blockersContaining("missing", "evidence", "authorization", "citation", "source")
}

// isPublishable reports whether no code keeps the decision out of public logs (aana.md 4). A decision
// without its request is not publishable.
func (a decision) isPublishable() bool {
	return a.body != nil && contract.ArePublishable(a.codes)
}

// enumValue is a field of the request, or nil if its value is not one of the contract's.
func enumValue[T ~string](a decision, name string, values []T) *T {
	if v := T(encode.TextAt(a.body, name)); slices.Contains(values, v) {
		return &v
	}
	return nil
}

func (a decision) authorizationState() *wire.State {
	return enumValue(a, "authorization_state", wire.States())
}

func (a decision) toolCategory() *wire.Category {
	return enumValue(a, "tool_category", wire.Categories())
}

func (a decision) riskDomain() *string { return enumValue(a, "risk_domain", wire.RiskDomains()) }

// evidenceSources lists the identifiers of the evidence, as the redacted request has them.
func (a decision) evidenceSources() []string {
	out := []string{}
	refs, _ := encode.ValueAt(a.body, "evidence_refs").([]any)
	for _, ref := range refs {
		id, isText := ref.(string)
		if !isText {
			id = encode.TextAt(ref, "source_id")
		}
		if id == "" || len(id) > maxIdentifier {
			id = "[left_out]"
		}
		out = append(out, id)
	}
	return out
}

// maxIdentifier is the longest identifier of evidence that a line repeats, in bytes.
const maxIdentifier = 128

// argumentKeys lists the names of the arguments as the contract's reply does. Evidence has masked
// their values.
func (a decision) argumentKeys() []string {
	args, _ := encode.ValueAt(a.body, "proposed_arguments").(map[string]any)
	return contract.ArgumentKeys(args)
}

package aana

import (
	"cmp"
	"slices"
	"strings"

	contract "github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
	"github.com/countersign-dev/countersign/events/digest"
)

// auditRecord is the audit record v0.1 of a tool precheck (aana.md 4). Fingerprints are keyed: the
// contract's own are plain and unsalted and would reveal short arguments. Evidence has only the
// fingerprint of the arguments.
type auditRecord struct {
	Version           string         `json:"audit_record_version"`
	CreatedAt         events.Time    `json:"created_at"`
	RecordType        string         `json:"record_type"`
	Mode              string         `json:"mode"`
	Surface           string         `json:"surface"`
	Route             wire.Route     `json:"route"`
	Contract          string         `json:"contract_version"`
	ToolName          *string        `json:"tool_name"`
	Category          *wire.Category `json:"tool_category"`
	Domain            *string        `json:"risk_domain"`
	Gate              string         `json:"gate_decision"`
	Action            wire.Route     `json:"recommended_action"`
	CandidateGate     string         `json:"candidate_gate"`
	AIx               contract.AIx   `json:"aix"`
	Blockers          []string       `json:"hard_blockers"`
	Missing           []string       `json:"missing_evidence"`
	State             *wire.State    `json:"authorization_state"`
	ViolationCount    int            `json:"violation_count"`
	ViolationCodes    []string       `json:"violation_codes"`
	Sources           []string       `json:"evidence_source_ids"`
	ArgumentKeys      []string       `json:"proposed_argument_keys"`
	LatencyMS         *float64       `json:"latency_ms"`
	FreshnessFailures []string       `json:"evidence_freshness_failures"`
	Review            review         `json:"human_review_route"`
	Fingerprints      map[string]any `json:"input_fingerprints"`
	Event             decisionEvent  `json:"audit_safe_log_event"`
	Evidence          encode.Proof   `json:"countersign"`
}

type review struct {
	Required bool       `json:"required"`
	Route    wire.Route `json:"route"`
	Reason   string     `json:"reason,omitempty"`
	Workflow string     `json:"workflow_id,omitempty"` // an addition of Countersign
}

func newAuditRecords(w *encode.Writer) encode.Encoder {
	return newReader(w, func(a decision) error { return w.WriteJSON(a.auditRecord()) })
}

func (a decision) auditRecord() auditRecord {
	fresh := slices.DeleteFunc(slices.Clone(a.codes), func(c string) bool { return !contract.ConcernsFreshness(c) })
	return auditRecord{
		Version: "0.1", CreatedAt: a.DecidedAt, RecordType: "tool_precheck", Mode: a.mode(), Surface: "countersign", Route: a.route,
		Contract: wire.ContractVersion, ToolName: encode.TextPointer(a.Tool), Category: a.toolCategory(), Domain: a.riskDomain(), Gate: a.finalGate(), Action: a.route,
		CandidateGate: a.candidateGate(), AIx: contract.NewAIx(a.route, a.blockers),
		Blockers: a.blockers, Missing: a.missingEvidence(), State: a.authorizationState(), ViolationCount: len(a.blockers), ViolationCodes: a.blockers,
		Sources: a.evidenceSources(), ArgumentKeys: a.argumentKeys(), LatencyMS: encode.DecisionLatency(a.Decision), FreshnessFailures: fresh,
		Review: a.reviewRoute(), Fingerprints: a.inputFingerprints(), Event: a.decisionEvent(), Evidence: encode.ProofOf(a.item, a.DecisionID),
	}
}

// mode is the contract's word for whether the policies had an effect. A verdict other than allow stops
// the call in mode observe as well.
func (a decision) mode() string {
	if a.Mode == events.ModeObserve && a.Would != "" && a.Verdict == events.Allow {
		return "shadow"
	}
	return "enforce"
}

func (a decision) reviewRoute() review {
	r := review{Required: a.route == wire.Ask || a.route == wire.Defer, Route: a.route}
	if r.Required {
		r.Reason = cmp.Or(append(a.blockers, "")...)
	}
	if a.Approval != nil {
		r.Workflow = a.Approval.WorkflowID
	}
	return r
}

// inputFingerprints holds the keyed digest of the arguments, if there is one.
func (a decision) inputFingerprints() map[string]any {
	out := map[string]any{}
	if form := digest.ComparableForm(a.ArgsDigest); form != "" && form != digest.PrefixPlain {
		hexed := strings.TrimPrefix(a.ArgsDigest, form)
		out["proposed_arguments"] = map[string]any{"hmac_sha256": hexed}
	}
	return out
}

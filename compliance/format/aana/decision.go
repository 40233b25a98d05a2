package aana

import (
	contract "github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/compliance/format/encode"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// decisionEvent is the audit-safe decision event (aana.md 4). Unknown values are null: the
// authorization report, and the fields of the request if the request is missing.
type decisionEvent struct {
	Version       string         `json:"audit_event_version"`
	Route         wire.Route     `json:"route"`
	Gate          string         `json:"gate_decision"`
	CandidateGate string         `json:"candidate_gate"`
	Score         float64        `json:"aix_score"`
	Decision      wire.Route     `json:"aix_decision"`
	Blockers      []string       `json:"hard_blockers"`
	Missing       []string       `json:"missing_evidence"`
	Refs          refs           `json:"evidence_refs"`
	PublicLog     bool           `json:"public_audit_log_allowed"`
	PublicClaim   bool           `json:"public_claim_allowed"`
	State         *wire.State    `json:"authorization_state"`
	Report        *string        `json:"authorization_report"` // always null
	ToolName      *string        `json:"tool_name"`
	Category      *wire.Category `json:"tool_category"`
	Domain        *string        `json:"risk_domain"`
	ArgumentKeys  []string       `json:"proposed_argument_keys"`
	LatencyMS     *float64       `json:"latency_ms"`
	RawLogged     bool           `json:"raw_payload_logged"`
	Evidence      encode.Proof   `json:"countersign"` // an addition of Countersign: the source record
}

type refs struct {
	Used          []string `json:"used"`
	Missing       []string `json:"missing"`
	Contradictory []string `json:"contradictory"`
}

func newDecisionEvents(w *encode.Writer) encode.Encoder {
	return newReader(w, func(a decision) error { return w.WriteJSON(a.decisionEvent()) })
}

func (a decision) decisionEvent() decisionEvent {
	return decisionEvent{
		Version: contract.AuditEventVersion, Route: a.route, Gate: a.finalGate(), CandidateGate: a.candidateGate(), Score: contract.NewAIx(a.route, nil).Score, Decision: a.route,
		Blockers: a.blockers, Missing: a.missingEvidence(), Refs: refs{a.evidenceSources(), a.missingEvidence(), a.blockersContaining("contradict")},
		PublicLog: a.isPublishable(), PublicClaim: a.isPublishable(), State: a.authorizationState(), ToolName: encode.TextPointer(a.Tool), Category: a.toolCategory(), Domain: a.riskDomain(),
		ArgumentKeys: a.argumentKeys(), LatencyMS: encode.DecisionLatency(a.Decision), Evidence: encode.ProofOf(a.item, a.DecisionID),
	}
}

package aana

import (
	contract "github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/compliance/format/encode"
)

// decisionEvent is the audit-safe decision event (aana.md 4). Unknown values are null: the
// authorization report, and the fields of the request if the request is missing.
type decisionEvent struct {
	contract.AuditEvent
	Evidence encode.Proof `json:"countersign"` // an addition of Countersign: the source record
}

func newDecisionEvents(w *encode.Writer) encode.Encoder {
	return newReader(w, func(a decision) error { return w.WriteJSON(a.decisionEvent()) })
}

func (a decision) decisionEvent() decisionEvent {
	return decisionEvent{contract.AuditEvent{
		Version: contract.AuditEventVersion,
		Outcome: contract.Outcome{
			Route: a.route, Gate: a.finalGate(), CandidateGate: a.candidateGate(), Score: contract.NewAIx(a.route, nil).Score, Decision: a.route,
			Blockers: a.blockers, Missing: a.missingEvidence(), Use: contract.EvidenceUse{Used: a.evidenceSources(), Missing: a.missingEvidence(), Contradictory: a.blockersContaining("contradict")},
		},
		PublicLog: a.isPublishable(), PublicClaim: a.isPublishable(), State: (*string)(a.authorizationState()), ToolName: encode.TextPointer(a.Tool), Category: (*string)(a.toolCategory()), Domain: a.riskDomain(),
		ArgumentKeys: a.argumentKeys(), LatencyMS: encode.DecisionLatency(a.Decision),
	}, encode.ProofOf(a.item, a.DecisionID)}
}

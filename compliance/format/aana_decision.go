package format

// aanaDecisionEvent is the audit-safe decision event (aana.md 4). What evidence
// does not know is null: the authorization report, and what the request says
// where the request is not there.
type aanaDecisionEvent struct {
	Version       string      `json:"audit_event_version"`
	Route         string      `json:"route"`
	Gate          string      `json:"gate_decision"`
	CandidateGate string      `json:"candidate_gate"`
	Score         float64     `json:"aix_score"`
	Decision      string      `json:"aix_decision"`
	Blockers      []string    `json:"hard_blockers"`
	Missing       []string    `json:"missing_evidence"`
	Refs          aanaRefs    `json:"evidence_refs"`
	PublicLog     bool        `json:"public_audit_log_allowed"`
	PublicClaim   bool        `json:"public_claim_allowed"`
	State         *string     `json:"authorization_state"`
	Report        *string     `json:"authorization_report"` // always null
	ToolName      *string     `json:"tool_name"`
	Category      *string     `json:"tool_category"`
	Domain        *string     `json:"risk_domain"`
	ArgumentKeys  []string    `json:"proposed_argument_keys"`
	LatencyMS     *float64    `json:"latency_ms"`
	RawLogged     bool        `json:"raw_payload_logged"`
	Evidence      recordProof `json:"countersign"` // ours: where it comes from
}

type aanaRefs struct {
	Used          []string `json:"used"`
	Missing       []string `json:"missing"`
	Contradictory []string `json:"contradictory"`
}

func newAANADecisions(w *lineWriter) encoder {
	return aanaEncoder(w, func(a aanaDecision) error { return w.writeJSON(a.decisionEvent()) })
}

func (a aanaDecision) decisionEvent() aanaDecisionEvent {
	return aanaDecisionEvent{
		Version: "aana.audit_safe_decision.v1", Route: a.route, Gate: a.finalGate(), CandidateGate: a.candidateGate(), Score: aanaRoutes[a.route], Decision: a.route,
		Blockers: a.blockers, Missing: a.missingEvidence(), Refs: aanaRefs{a.evidenceSources(), a.missingEvidence(), a.blockersContaining("contradict")},
		PublicLog: a.isPublishable(), PublicClaim: a.isPublishable(), State: a.authorizationState(), ToolName: textPointer(a.Tool), Category: a.toolCategory(), Domain: a.riskDomain(),
		ArgumentKeys: a.argumentKeys(), LatencyMS: decisionLatency(a.Decision), Evidence: proofOf(a.item, a.DecisionID),
	}
}

package aana

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// Versions in an envelope.
const (
	AIxVersion        = "0.1"
	AuditEventVersion = "aana.audit_safe_decision.v1"
)

const architectureClaim = "Decided by Countersign under the AANA Agent Action Contract v1."

// AIx is the alignment index of a decision.
type AIx struct {
	Version    string     `json:"aix_version"`
	Score      float64    `json:"score"`
	Components Components `json:"components"`
	Decision   wire.Route `json:"decision"`
	Blockers   []string   `json:"hard_blockers"`
}

// Components of the index.
type Components struct{ P, F, C float64 }

// EventView is what an envelope repeats of the event. Members that the event lacks, or has in a
// form that is not safe to repeat, are null.
type EventView struct {
	ToolName     *string
	Category     *string
	State        *string
	Domain       *string
	ArgumentKeys []string
	SourceIDs    []string
}

// Envelope is the contract's result in the form of the reply.
type Envelope struct {
	ContractVersion string               `json:"contract_version"`
	ToolName        *string              `json:"tool_name"`
	Category        string               `json:"tool_category,omitempty"`
	State           string               `json:"authorization_state,omitempty"`
	Domain          string               `json:"risk_domain,omitempty"`
	Gate            string               `json:"gate_decision"`
	Action          wire.Route           `json:"recommended_action"`
	CandidateGate   string               `json:"candidate_gate"`
	AANARoute       wire.Route           `json:"aana_route,omitempty"`
	Recommended     wire.Route           `json:"runtime_recommended_route,omitempty"`
	AIx             AIx                  `json:"aix"`
	Blockers        []string             `json:"hard_blockers"`
	Reasons         []string             `json:"reasons"`
	RefCount        *int                 `json:"evidence_ref_count,omitempty"`
	Evidence        *EvidenceIntegrity   `json:"evidence_integrity,omitempty"`
	Authorization   *AuthorizationReport `json:"authorization_report,omitempty"`
	Errors          []ValidationError    `json:"validation_errors,omitempty"`
	Route           wire.Route           `json:"route"`
	Architecture    Architecture         `json:"architecture_decision"`
	Execution       ExecutionPolicy      `json:"execution_policy"`
	Approval        *Approval            `json:"approval,omitempty"`
}

// EvidenceUse groups evidence by its use.
type EvidenceUse struct {
	Used          []string `json:"used"`
	Missing       []string `json:"missing"`
	Contradictory []string `json:"contradictory"`
}

// Outcome is what an Architecture and an AuditEvent begin with.
type Outcome struct {
	Route         wire.Route  `json:"route"`
	Gate          string      `json:"gate_decision"`
	CandidateGate string      `json:"candidate_gate"`
	Score         float64     `json:"aix_score"`
	Decision      wire.Route  `json:"aix_decision"`
	Blockers      []string    `json:"hard_blockers"`
	Missing       []string    `json:"missing_evidence"`
	Use           EvidenceUse `json:"evidence_refs"`
}

// Architecture is the part of an envelope for agents.
type Architecture struct {
	Claim string `json:"architecture_claim"`
	Outcome
	Evidence      *EvidenceIntegrity   `json:"evidence_integrity"`
	State         string               `json:"authorization_state"`
	Authorization *AuthorizationReport `json:"authorization_report"`
	ToolName      *string              `json:"tool_name"`
	Category      *string              `json:"tool_category"`
	Domain        *string              `json:"risk_domain"`
	Recovery      string               `json:"recovery_suggestion"`
	Correction    string               `json:"correction_recovery_suggestion"`
	Audit         AuditEvent           `json:"audit_event"`
	SafeLog       AuditEvent           `json:"audit_safe_log_event"`
}

// AuditEvent is what may be logged of a decision: no text of the event, no value of an
// argument.
type AuditEvent struct {
	Version string `json:"audit_event_version"`
	Outcome
	PublicLog     bool                 `json:"public_audit_log_allowed"`
	PublicClaim   bool                 `json:"public_claim_allowed"`
	State         *string              `json:"authorization_state"`
	Effective     string               `json:"effective_authorization_state,omitempty"` // Countersign's own: the contract shows only the declared state
	Authorization *AuthorizationReport `json:"authorization_report"`
	ToolName      *string              `json:"tool_name"`
	Category      *string              `json:"tool_category"`
	Domain        *string              `json:"risk_domain"`
	ArgumentKeys  []string             `json:"proposed_argument_keys"`
	LatencyMS     *float64             `json:"latency_ms"` // from receipt to decision, three decimals; null if unknown
	RawLogged     bool                 `json:"raw_payload_logged"`
}

// ExecutionPolicy states whether the call may be executed, and if not, why.
type ExecutionPolicy struct {
	Mode       string          `json:"mode"`
	AANAAllows bool            `json:"aana_allows_execution"`
	Allowed    bool            `json:"execution_allowed"`
	FailClosed bool            `json:"fail_closed"`
	Reason     string          `json:"reason"`
	Required   wire.Route      `json:"required_route"`
	RouteTable map[string]Step `json:"route_table"`
	Observed   Observed        `json:"observed"`
}

// Observed are the inputs of the execution policy. The blockers of the envelope, of aix and of
// the architecture decision are counted together.
type Observed struct {
	Gate         string     `json:"gate_decision"`
	Action       wire.Route `json:"recommended_action"`
	Route        wire.Route `json:"architecture_route"`
	BlockerCount int        `json:"hard_blocker_count"`
	ErrorCount   int        `json:"validation_error_count"`
}

// Approval is Countersign's addition: the state of the approval workflow of an ask or defer.
type Approval struct {
	Required     bool        `json:"required"`
	Status       string      `json:"status"`
	WorkflowID   string      `json:"workflow_id"`
	ActionID     string      `json:"action_id,omitempty"`
	RequestedAt  events.Time `json:"requested_at"`
	ExpiresAt    events.Time `json:"expires_at"`
	ResumePolicy string      `json:"resume_policy,omitempty"`
}

func gateWord(pass bool) string {
	if pass {
		return "pass"
	}
	return "fail"
}

// Envelope renders the result.
func (r Result) Envelope() Envelope {
	e := Envelope{
		ContractVersion: wire.ContractVersion, ToolName: r.Event.ToolName, Gate: gateWord(r.passesGate()), Action: r.Route, Route: r.Route,
		CandidateGate: gateWord(r.AANARoute == wire.Accept && len(r.Blockers) == 0 && len(r.Errors) == 0),
		AIx:           r.buildAIx(), Blockers: r.Blockers, Reasons: r.Reasons, Errors: r.Errors,
	}
	if r.Authorization != nil { // the contract shows nothing more of a malformed event
		e.Category, e.State, e.Domain = textOrEmpty(r.Event.Category), textOrEmpty(r.Event.State), textOrEmpty(r.Event.Domain)
		e.AANARoute, e.Recommended, e.RefCount = r.AANARoute, r.Recommended, &r.Evidence.Checked
		e.Evidence, e.Authorization = r.Evidence, r.Authorization
	}
	e.Architecture = r.buildArchitecture(e)
	e.Execution = r.buildExecutionPolicy(e)
	return e
}

func textOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (r Result) buildAIx() AIx {
	if r.notNormalised {
		return AIx{AIxVersion, 0, Components{}, r.Route, r.Blockers}
	}
	return NewAIx(r.Route, r.Blockers)
}

// NewAIx returns the index of a decision.
func NewAIx(route wire.Route, blockers []string) AIx {
	score, f := routeScores[route], 0.75
	if route == wire.Accept {
		f = 1
	}
	return AIx{AIxVersion, score, Components{score, f, score}, route, blockers}
}

// missingMarks are parts of blockers that concern missing evidence.
var missingMarks = []string{"missing", "evidence", "authorization", "citation", "source"}

const notDeclared = "not_declared"

func (r Result) buildArchitecture(e Envelope) Architecture {
	missing := []string{}
	contradictory := []string{}
	if r.Evidence != nil {
		contradictory = append(contradictory, r.Evidence.Contradictory...)
	}
	for _, b := range r.Blockers {
		if containsAny(b, missingMarks) {
			missing = append(missing, b)
		}
		if strings.Contains(b, "contradict") {
			contradictory = append(contradictory, b)
		}
	}
	state := notDeclared
	if r.Event.State != nil {
		state = *r.Event.State
	}
	a := Architecture{
		Claim: architectureClaim,
		Outcome: Outcome{
			Route: r.Route, Gate: e.Gate, CandidateGate: e.CandidateGate, Score: e.AIx.Score, Decision: r.Route,
			Blockers: r.Blockers, Missing: missing, Use: EvidenceUse{r.Event.SourceIDs, missing, contradictory},
		},
		Evidence: r.Evidence, State: state, Authorization: r.Authorization,
		ToolName: r.Event.ToolName, Category: r.Event.Category, Domain: r.Event.Domain, Recovery: recoveryTexts[r.Route], Correction: recoveryTexts[r.Route],
	}
	a.Audit = r.buildAuditEvent(a)
	a.SafeLog = a.Audit
	return a
}

func (r Result) buildAuditEvent(a Architecture) AuditEvent {
	v := AuditEvent{
		Version: AuditEventVersion, Outcome: a.Outcome, PublicLog: r.Evidence.publishable(), PublicClaim: r.Evidence.publishable(),
		State: &a.State, Authorization: a.Authorization, ToolName: a.ToolName, Category: a.Category, Domain: a.Domain,
		ArgumentKeys: r.Event.ArgumentKeys,
	}
	if r.Authorization != nil {
		v.Effective = string(r.Authorization.Effective)
	}
	return v
}

// The reasons of an execution policy, by priority.
const (
	executionInvalid  = "schema_or_contract_validation_failed"
	executionBlocked  = "hard_blockers_present"
	executionRoute    = "route_not_accept"
	executionAccepted = "enforcement_accept"
)

func (r Result) buildExecutionPolicy(e Envelope) ExecutionPolicy {
	allows := e.Gate == gateWord(true) && e.Action == wire.Accept && e.Architecture.Route == wire.Accept &&
		len(e.Blockers) == 0 && len(e.AIx.Blockers) == 0 && len(e.Errors) == 0
	reason := executionAccepted
	switch {
	case len(e.Errors) > 0:
		reason = executionInvalid
	case len(e.Blockers) > 0:
		reason = executionBlocked
	case !allows:
		reason = executionRoute
	}
	return ExecutionPolicy{
		Mode: "enforce", AANAAllows: allows, Allowed: allows, FailClosed: !allows, Reason: reason, Required: wire.Accept, RouteTable: routeTable,
		Observed: Observed{e.Gate, e.Action, e.Architecture.Route, len(e.Blockers) + len(e.AIx.Blockers) + len(e.Architecture.Blockers), len(e.Errors)},
	}
}

// Limits of repeated argument names.
const (
	maxKeys = 64
	maxKey  = 64
)

// viewOf copies the fields of an event that may be repeated.
func viewOf(e *wire.Event, mask func(id, fallback string) string) EventView {
	v := EventView{ArgumentKeys: ArgumentKeys(e.Arguments), SourceIDs: []string{}}
	v.ToolName = optionalText(e.ToolName, len(e.ToolName) <= call.MaxField)
	v.Category = optionalText(string(e.Category), slices.Contains(wire.Categories(), e.Category))
	v.State = optionalText(string(e.Authorized), slices.Contains(wire.States(), e.Authorized))
	v.Domain = optionalText(e.RiskDomain, slices.Contains(wire.RiskDomains(), e.RiskDomain))
	for i, ref := range e.Evidence[:min(len(e.Evidence), MaxEvidenceRefs)] {
		v.SourceIDs = append(v.SourceIDs, mask(ref.SourceID, fallbackID(i)))
	}
	return v
}

func optionalText(s string, ok bool) *string {
	if s == "" || !ok {
		return nil
	}
	return &s
}

package agenthook

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/schemas"
)

// Event is what the state machine needs of one event. It keeps nothing of the
// document but the blocks that it knows.
type Event struct {
	ID             string
	Type           string
	Session        string // as the event names it
	CallID         string // tool_call_id
	Time           time.Time
	Family         string // the event's source, as it says itself
	FailMode       bool   // the publisher's fail mode fired
	AnswersUnknown bool   // a governed call answers "unknown" where the profile wants to know

	phase          string
	correlation    string // its correlation id, which may be an event's
	instances      []string
	runtimeSession string // the session that managed_runtime names
	verdict        string
	approval       *agenthook.Approval
	// VoidApproval says that the approval block does not follow its schema: nothing is
	// approved by it.
	VoidApproval     bool
	execution        *agenthook.Execution
	hasExecuted      bool // it says what ran
	isRetry          bool
	letCallPass      bool // it let a call pass
	governed         bool // it has a block of AHP-013, or its publisher is registered for the profile
	partlyExposed    bool // its publisher's manifest says that its type is exposed in part only
	validationFailed bool // its validation failed

	webBlock    *webBlock
	attestation *attestation
	hooks       []hookTrust
	contract    *contract
	// listsHooks: it tells of its runtime's hooks, not only of the one that it came from.
	listsHooks      bool
	eventFindings   []eventFinding
	introducedHooks []IntroducedHook

	// Seq and At are the message's place in the log and the broker's time. They
	// are to be set before the event is applied.
	Seq uint64
	At  time.Time
}

// eventFinding is a check that an event fails by itself.
type eventFinding struct {
	check, text string
	hint        bool
}

// NewEvent reads an event.
func NewEvent(e *agenthook.Event) *Event {
	out := &Event{ID: fact.BoundID(e.EventID), Type: e.EventType, Session: fact.BoundID(e.SessionID), CallID: fact.BoundID(e.ToolCallID()),
		Family: e.Source, Time: e.Time.UTC(), phase: e.EvidencePhase, correlation: fact.BoundID(agenthook.NormaliseID(e.CorrelationID))}
	if e.HasMetadata() {
		out.readBlocks(e)
	}
	out.checkEvent(e)
	return out
}

func (x *Event) readBlocks(e *agenthook.Event) {
	if v, ok := e.AdmissionVerdict(); ok {
		x.verdict = v.Verdict
	}
	x.approval, _ = e.Approval()
	x.execution, _ = e.Execution()
	x.hasExecuted = e.HasExecuted()
	if r, ok := e.Retry(); ok {
		x.isRetry = r.PreviousToolCallID != "" || (r.Attempt != nil && *r.Attempt > 1)
	}
	if m, ok := e.FailMode(); ok {
		x.FailMode, x.letCallPass = m.Triggered, m.Triggered && m.Outcome == "allow"
	}
	x.governed = e.HasGovernanceBlock()
	x.AnswersUnknown = x.governed && e.EventType == agenthook.PreToolUse && AnswersUnknown(e)
	if v, ok := e.Validation(); ok {
		x.validationFailed = v.Status == "failed"
	}
	x.readIdentity(e.Metadata)
	if block, ok := e.Metadata["web"].(map[string]any); ok {
		x.webBlock = newWebBlock(block)
	}
	if block, ok := e.Metadata["runtime_attestation"].(map[string]any); ok {
		x.attestation = newAttestation(block)
	}
	x.hooks, x.listsHooks = hooksIn(e.Metadata)
	if block, ok := e.Metadata["runtime_contract"].(map[string]any); ok {
		x.contract = newContract(block)
	}
}

// ApplyRegistration notes what is registered of the event's publisher: that it must keep
// to the action-governance profile, and that events of this type are exposed in part
// only, which excuses what they lack. It is to be called before the event is
// applied.
func (x *Event) ApplyRegistration(governs, partly bool) {
	x.partlyExposed = partly
	if !governs || x.governed {
		return
	}
	x.governed = true
	x.addFindingIf(x.Type == agenthook.PreToolUse, "AH-C-031", "its publisher is registered for the profile, and it has none of its blocks")
	x.addFindingIf(x.Type != agenthook.PreToolUse && schemas.ProfileCovers(x.Type) && x.CallID == "", "AH-C-030", "its publisher is registered for the profile, and it has no tool_call_id")
}

// AnswersUnknown tells whether a call says "unknown" where AHP-013 wants to know.
func AnswersUnknown(e *agenthook.Event) bool {
	const unknown = "unknown"
	if r, ok := e.Risk(); ok && r.RiskClass == unknown {
		return true
	}
	return e.Action == unknown || e.ResourceKind == unknown || e.ResourceScope == unknown || e.OperationRisk == unknown || e.Resource == unknown
}

func (x *Event) readIdentity(metadata map[string]any) {
	if id := stringMember(metadata, "instance_id"); id != "" {
		x.instances = append(x.instances, fact.BoundID(id))
	}
	if m, ok := metadata["managed_runtime"].(map[string]any); ok {
		if id := stringMember(m, "instance_id"); id != "" {
			x.instances = append(x.instances, fact.BoundID(id))
		}
		x.runtimeSession = fact.BoundID(stringMember(m, "session_id"))
	}
}

// Nonce is that of the event's attestation, "" if it has none.
func (x *Event) Nonce() string {
	if x.attestation == nil {
		return ""
	}
	return x.attestation.nonce
}

func stringMember(m map[string]any, key string) string { s, _ := m[key].(string); return s }

func parseInstant(s string) time.Time {
	if t, ok := events.ParsePlainTime(s); ok {
		return t
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// profileFindings judges an event of a governed call by the action-governance profile,
// but for what can only be said when the call ends. One without a tree follows
// it.
func profileFindings(e *agenthook.Event) []eventFinding {
	if !schemas.ProfileCovers(e.EventType) || e.Tree == nil {
		return nil
	}
	var found []eventFinding
	seen := map[string]bool{"AH-C-032": true, "AH-C-033": true} // decided when the call ends
	for _, v := range schemas.AgentHookProfile(e.Tree, schemas.FormEvidence) {
		if seen[v.Check] {
			continue
		}
		seen[v.Check] = true
		found = append(found, eventFinding{check: v.Check, text: catalogue.CodeAtPath(v.Keyword, v.Path)})
	}
	return found
}

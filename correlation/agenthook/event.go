package agenthook

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// Event is what the session's parts need of an event. Of the document it keeps only the blocks
// that it knows.
type Event struct {
	ID             string
	Type           string
	Session        string // as in the event
	CallID         string // tool_call_id
	Time           time.Time
	Family         string // source, as in the event
	FailMode       bool   // the publisher's fail mode fired
	AnswersUnknown bool   // a governed call answers "unknown" where the profile wants to know

	phase          string
	correlation    string // the correlation id, which may be the id of an event
	instances      []string
	runtimeSession string // the session in managed_runtime
	verdict        string
	approval       *agenthook.Approval
	// VoidApproval says that the approval block breaks its schema, so it approves nothing.
	VoidApproval  bool
	execution     *agenthook.Execution
	hasExecuted   bool // it says what was executed
	isRetry       bool
	letCallPass   bool   // it let a call pass
	governed      bool   // it has a block of AHP-013, or its publisher is registered for that profile
	partlyExposed bool   // the manifest of its publisher says that its type is exposed in part only
	validation    string // the status of its validation

	webBlock    *webBlock
	attestation *attestation
	hooks       []hookTrust
	contract    *contract
	// listsHooks says that it lists the runtime's hooks, and not only its own.
	listsHooks      bool
	eventFindings   []eventFinding
	introducedHooks []IntroducedHook

	// Seq and At are the message's sequence and the broker's time. The caller sets them before
	// it applies the event.
	Seq uint64
	At  time.Time
}

// eventFinding is a check that an event breaks by itself.
type eventFinding struct {
	check, text string
	hint        bool
}

// NewEvent makes the Event of a parsed event.
func NewEvent(e *agenthook.Event) *Event {
	out := &Event{ID: fact.BoundID(e.EventID), Type: e.EventType, Session: fact.BoundID(e.SessionID), CallID: fact.BoundID(e.ToolCallID()),
		Family: e.Source, Time: e.Time.UTC(), phase: e.EvidencePhase, correlation: fact.BoundID(events.NormaliseID(e.CorrelationID))}
	if e.HasMetadata() {
		out.readBlocks(e)
	}
	out.checkEvent(e)
	return out
}

func (x *Event) readBlocks(e *agenthook.Event) {
	if v := e.AdmissionVerdict; v != nil {
		x.verdict = v.Verdict
	}
	x.approval, x.execution = e.Approval, e.Execution
	x.hasExecuted = e.HasExecuted()
	if r := e.Retry; r != nil {
		x.isRetry = r.PreviousToolCallID != "" || (r.Attempt != nil && *r.Attempt > 1)
	}
	if m := e.FailMode; m != nil {
		x.FailMode, x.letCallPass = m.Triggered, m.Triggered && m.Outcome == "allow"
	}
	x.governed = e.HasGovernanceBlock()
	x.AnswersUnknown = x.governed && e.EventType == agenthook.PreToolUse && AnswersUnknown(e)
	if v := e.Validation; v != nil {
		x.validation = v.Status
	}
	x.readIdentity(e.Metadata)
	if block := objectMember(e.Metadata, "web"); block.Exists() {
		x.webBlock = newWebBlock(block)
	}
	if block := objectMember(e.Metadata, "runtime_attestation"); block.Exists() {
		x.attestation = newAttestation(block)
	}
	x.hooks, x.listsHooks = hooksIn(e.Metadata)
	if block := objectMember(e.Metadata, "runtime_contract"); block.Exists() {
		x.contract = newContract(block)
	}
}

// ApplyRegistration sets what is registered of the event's publisher: governs, that it must
// follow the action-governance profile; partly, that events of this type are exposed in part
// only, which excuses missing members. It MUST be called before the event is applied.
func (x *Event) ApplyRegistration(governs, partly bool) {
	x.partlyExposed = partly
	if !governs || x.governed {
		return
	}
	x.governed = true
	x.addFindingIf(x.Type == agenthook.PreToolUse, "AH-C-031", "its publisher is registered for the profile, and it has none of its blocks")
	x.addFindingIf(x.Type != agenthook.PreToolUse && hookschema.ProfileCovers(x.Type) && x.CallID == "", "AH-C-030", "its publisher is registered for the profile, and it has no tool_call_id")
}

// AnswersUnknown reports whether a call says "unknown" where AHP-013 wants an answer.
func AnswersUnknown(e *agenthook.Event) bool {
	const unknown = "unknown"
	if r := e.Risk; r != nil && r.RiskClass == unknown {
		return true
	}
	return e.Action == unknown || e.ResourceKind == unknown || e.ResourceScope == unknown || e.OperationRisk == unknown || e.Resource == unknown
}

func (x *Event) readIdentity(metadata strictjson.Value) {
	if id := stringMember(metadata, "instance_id"); id != "" {
		x.instances = append(x.instances, fact.BoundID(id))
	}
	if m := objectMember(metadata, "managed_runtime"); m.Exists() {
		if id := stringMember(m, "instance_id"); id != "" {
			x.instances = append(x.instances, fact.BoundID(id))
		}
		x.runtimeSession = fact.BoundID(stringMember(m, "session_id"))
	}
}

// Nonce is the nonce of the event's attestation; "" if it has none.
func (x *Event) Nonce() string {
	if x.attestation == nil {
		return ""
	}
	return x.attestation.nonce
}

// stringMember is the text of a member, which may be kept; "" if it is no text.
func stringMember(v strictjson.Value, key string) string {
	if m := v.Get(key); m.Kind() == strictjson.KindString {
		return m.Text()
	}
	return ""
}

// objectMember is a member that is an object; no value if there is none.
func objectMember(v strictjson.Value, key string) strictjson.Value {
	if m := v.Get(key); m.Kind() == strictjson.KindObject {
		return m
	}
	return strictjson.Value{}
}

// profileFindings judges an event of a governed call by the action-governance profile,
// but for what can only be said when the call ends.
func profileFindings(e *agenthook.Event) []eventFinding {
	if !hookschema.ProfileCovers(e.EventType) {
		return nil
	}
	violations := hookschema.ValidateProfile(e.Doc, hookschema.FormEvidence)
	if len(violations) == 0 {
		return nil
	}
	var found []eventFinding
	seen := map[string]bool{"AH-C-032": true, "AH-C-033": true} // decided when the call ends
	for _, v := range violations {
		if seen[v.Check] {
			continue
		}
		seen[v.Check] = true
		found = append(found, eventFinding{check: v.Check, text: catalogue.CodeAtPath(v.Keyword, v.Path)})
	}
	return found
}

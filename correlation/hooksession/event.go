package hooksession

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// Event is what the state machine needs of one event. It keeps nothing of the
// document but the blocks that it knows.
type Event struct {
	ID       string
	Type     string
	Session  string // as the event names it
	Call     string // tool_call_id
	Time     time.Time
	Family   string // the event's source, as it says itself
	FailMode bool   // the publisher's fail mode fired
	Unknown  bool   // a governed call answers "unknown" where the profile wants to know

	phase       string
	correlation string // its correlation id, which may be an event's
	instances   []string
	named       string // the session that managed_runtime names
	verdict     string
	approval    *agenthook.Approval
	// VoidApproval says that the approval block does not follow its schema: nothing is
	// approved by it.
	VoidApproval bool
	execution    *agenthook.Execution
	executed     bool // it says what ran
	retries      bool
	letPass      bool // it let a call pass
	governed     bool // it has a block of AHP-013, or its publisher is registered for the profile
	partly       bool // its publisher's manifest says that its type is exposed in part only
	failed       bool // its validation failed

	web    *web
	attest *attestation
	hooks  []hookTrust
	needs  *contract
	// listsHooks: it tells of its runtime's hooks, not only of the one that it came from.
	listsHooks bool
	local      []finding
	met        []Met

	// Seq and At are the message's place in the log and the broker's time. They
	// are to be set before the event is applied.
	Seq uint64
	At  time.Time
}

// finding is a check that an event fails by itself.
type finding struct {
	check, what string
	hint        bool
}

// maxText bounds the ids that are kept of an event; longer ones appear as "~h"
// and their SHA-256.
const maxText = 1024

func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return subject.Escape(s)
}

// NewEvent reads an event.
func NewEvent(e *agenthook.Event) *Event {
	out := &Event{ID: bounded(e.EventID), Type: e.EventType, Session: bounded(e.SessionID), Call: bounded(e.ToolCallID()),
		Family: e.Source, Time: e.Time.UTC(), phase: e.EvidencePhase, correlation: bounded(agenthook.NormaliseID(e.CorrelationID))}
	if e.HasMetadata() {
		out.blocks(e)
	}
	out.check(e)
	return out
}

func (x *Event) blocks(e *agenthook.Event) {
	if v, ok := e.AdmissionVerdict(); ok {
		x.verdict = v.Verdict
	}
	x.approval, _ = e.Approval()
	x.execution, _ = e.Execution()
	x.executed = e.HasExecuted()
	if r, ok := e.Retry(); ok {
		x.retries = r.PreviousToolCallID != "" || (r.Attempt != nil && *r.Attempt > 1)
	}
	if m, ok := e.FailMode(); ok {
		x.FailMode, x.letPass = m.Triggered, m.Triggered && m.Outcome == "allow"
	}
	x.governed = e.Governed()
	x.Unknown = x.governed && e.EventType == agenthook.PreToolUse && AnswersUnknown(e)
	if v, ok := e.Validation(); ok {
		x.failed = v.Status == "failed"
	}
	x.identity(e.Metadata)
	if block, ok := e.Metadata["web"].(map[string]any); ok {
		x.web = newWeb(block)
	}
	if block, ok := e.Metadata["runtime_attestation"].(map[string]any); ok {
		x.attest = newAttestation(block)
	}
	x.hooks, x.listsHooks = hooksIn(e.Metadata)
	if block, ok := e.Metadata["runtime_contract"].(map[string]any); ok {
		x.needs = newContract(block)
	}
}

// Registered notes what is registered of the event's publisher: that it must keep
// to the action-governance profile, and that events of this type are exposed in part
// only, which excuses what they lack. It is to be called before the event is
// applied.
func (x *Event) Registered(governs, partly bool) {
	x.partly = partly
	if !governs || x.governed {
		return
	}
	x.governed = true
	x.failsIf(x.Type == agenthook.PreToolUse, "AH-C-031", "its publisher is registered for the profile, and it has none of its blocks")
	x.failsIf(x.Type != agenthook.PreToolUse && schemas.ProfileCovers(x.Type) && x.Call == "", "AH-C-030", "its publisher is registered for the profile, and it has no tool_call_id")
}

// AnswersUnknown tells whether a call says "unknown" where AHP-013 wants to know.
func AnswersUnknown(e *agenthook.Event) bool {
	const unknown = "unknown"
	if r, ok := e.Risk(); ok && r.RiskClass == unknown {
		return true
	}
	return e.Action == unknown || e.ResourceKind == unknown || e.ResourceScope == unknown || e.OperationRisk == unknown || e.Resource == unknown
}

func (x *Event) identity(metadata map[string]any) {
	if id := text(metadata, "instance_id"); id != "" {
		x.instances = append(x.instances, bounded(id))
	}
	if m, ok := metadata["managed_runtime"].(map[string]any); ok {
		if id := text(m, "instance_id"); id != "" {
			x.instances = append(x.instances, bounded(id))
		}
		x.named = bounded(text(m, "session_id"))
	}
}

// Nonce is that of the event's attestation, "" if it has none.
func (x *Event) Nonce() string {
	if x.attest == nil {
		return ""
	}
	return x.attest.nonce
}

func text(m map[string]any, key string) string { s, _ := m[key].(string); return s }

func instant(s string) time.Time {
	if t, ok := events.PlainTime(s); ok {
		return t
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// profile judges an event of a governed call by the action-governance profile,
// but for what can only be said when the call ends. One that was read flat passes
// it.
func profile(e *agenthook.Event) []finding {
	if !schemas.ProfileCovers(e.EventType) || e.Tree == nil {
		return nil
	}
	var found []finding
	seen := map[string]bool{"AH-C-032": true, "AH-C-033": true} // decided when the call ends
	for _, v := range schemas.Default().AgentHookProfile(e.Tree, schemas.FormEvidence) {
		if seen[v.Check] {
			continue
		}
		seen[v.Check] = true
		found = append(found, finding{check: v.Check, what: catalogue.At(v.Keyword, v.Path)})
	}
	return found
}

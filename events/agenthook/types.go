package agenthook

import "strings"

// The named event types. Any other PascalCase name is legal too.
const (
	// Core (SPEC section 2).
	PreToolUse       = "PreToolUse"
	PostToolUse      = "PostToolUse"
	UserPromptSubmit = "UserPromptSubmit"
	PreLLMCall       = "PreLLMCall"
	PostLLMCall      = "PostLLMCall"
	ModelResponse    = "ModelResponse"
	SessionStart     = "SessionStart"
	SessionEnd       = "SessionEnd"
	AgentHandoff     = "AgentHandoff"
	ErrorOccurred    = "ErrorOccurred"

	// Web evidence (AHP-012).
	WebSearchRequested       = "WebSearchRequested"
	WebSearchResultsReturned = "WebSearchResultsReturned"
	WebResultSelected        = "WebResultSelected"
	WebPageRead              = "WebPageRead"
	WebActionRequested       = "WebActionRequested"
	WebActionCompleted       = "WebActionCompleted"
	EvidenceUsedInOutput     = "EvidenceUsedInOutput"

	// Action governance (AHP-013).
	ToolCallValidated = "ToolCallValidated"
	ToolCallRedacted  = "ToolCallRedacted"
	ToolCallRetried   = "ToolCallRetried"

	// Approvals (AHP-007).
	ApprovalRequested = "ApprovalRequested"
	ApprovalGranted   = "ApprovalGranted"
	ApprovalDenied    = "ApprovalDenied"
	ToolUseResumed    = "ToolUseResumed"
	ToolUseBlocked    = "ToolUseBlocked"

	// Runtime contract (AHP-009) and goals (AHP-010).
	RuntimeContractLoaded = "RuntimeContractLoaded"
	GoalSet               = "GoalSet"
	GoalStatus            = "GoalStatus"
)

// Evidence phases.
const (
	PhasePreCommit     = "pre_commit"
	PhasePostHoc       = "post_hoc"
	PhaseObservational = "observational"
)

// typeTraits are the protocol's properties of a named type.
type typeTraits struct {
	admission bool // a subscriber may answer allow, deny or ask
	closes    bool // ends the call it names
}

var knownTypes = map[string]typeTraits{
	PreToolUse:               {admission: true},
	PostToolUse:              {closes: true},
	UserPromptSubmit:         {},
	PreLLMCall:               {admission: true},
	PostLLMCall:              {},
	ModelResponse:            {},
	SessionStart:             {},
	SessionEnd:               {},
	AgentHandoff:             {},
	ErrorOccurred:            {closes: true}, // only with a tool_call_id
	WebSearchRequested:       {},
	WebSearchResultsReturned: {},
	WebResultSelected:        {admission: true},
	WebPageRead:              {},
	WebActionRequested:       {admission: true},
	WebActionCompleted:       {},
	EvidenceUsedInOutput:     {},
	ToolCallValidated:        {},
	ToolCallRedacted:         {},
	ToolCallRetried:          {},
	ApprovalRequested:        {},
	ApprovalGranted:          {},
	ApprovalDenied:           {},
	ToolUseResumed:           {},
	ToolUseBlocked:           {closes: true},
	RuntimeContractLoaded:    {},
	GoalSet:                  {},
	GoalStatus:               {},
}

// IsKnownType reports whether a type is one of the named ones.
func IsKnownType(eventType string) bool {
	_, ok := knownTypes[eventType]
	return ok
}

// ValidTypeName reports whether a name is PascalCase as SPEC section 2 demands:
// [A-Z][A-Za-z0-9]*.
func ValidTypeName(name string) bool {
	for i := range len(name) {
		c := name[i]
		upper := c >= 'A' && c <= 'Z'
		if !upper && (i == 0 || !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9')) {
			return false
		}
	}
	return name != ""
}

// IsPre reports whether a type, named or not, precedes an action: "Pre" and a name.
func IsPre(eventType string) bool { return hasWord(eventType, "Pre") }

// IsPost reports whether a type, named or not, follows an action: "Post" and a name.
func IsPost(eventType string) bool { return hasWord(eventType, "Post") }

// hasWord reports whether name begins with word as a whole word: PreToolUse has Pre, Preview
// has not.
func hasWord(name, word string) bool {
	rest, ok := strings.CutPrefix(name, word)
	return ok && ValidTypeName(rest)
}

// AdmissionCapable reports whether subscribers may answer events of a type with
// a verdict: every Pre event, named or not, and two of the web events.
func AdmissionCapable(eventType string) bool {
	return IsPre(eventType) || knownTypes[eventType].admission
}

// NamesProposal reports whether a name is, but for the case of its letters, that of a named type that proposes something.
func NamesProposal(name string) bool {
	for known, traits := range knownTypes {
		if traits.admission && strings.EqualFold(known, name) {
			return true
		}
	}
	return false
}

// WaitsForVerdict reports whether the event proposes something, by its type or by its phase.
func (e *Event) WaitsForVerdict() bool {
	return AdmissionCapable(e.EventType) || e.EvidencePhase == PhasePreCommit
}

// HasUnknownPhase reports whether the event names a phase, and none of AgentHook's.
func (e *Event) HasUnknownPhase() bool {
	phase := e.Doc.Get("evidence_phase")
	return phase.Exists() && !phase.IsText(PhasePreCommit) && !phase.IsText(PhaseObservational) && !phase.IsText(PhasePostHoc)
}

// OnlyReports reports whether an event proposes nothing. Types that propose always do, whatever
// phase they claim; an unknown type only reports if its phase says so.
func (e *Event) OnlyReports() bool {
	return !e.WaitsForVerdict() && (IsKnownType(e.EventType) || e.EvidencePhase == PhaseObservational || e.EvidencePhase == PhasePostHoc)
}

// ClosesCall reports whether the event ends the call that its tool_call_id names:
// PostToolUse, ToolUseBlocked, and an ErrorOccurred that names a call.
func (e *Event) ClosesCall() bool { return ClosesCall(e.EventType, e.ToolCallID()) }

// ClosesCall is Event.ClosesCall for a type and a tool_call_id.
func ClosesCall(eventType, toolCallID string) bool {
	return knownTypes[eventType].closes && (eventType != ErrorOccurred || toolCallID != "")
}

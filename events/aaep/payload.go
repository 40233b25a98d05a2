package aaep

import "github.com/countersign-dev/countersign/events/internal/field"

const (
	typePrefix = "aaep:"
	typeURI    = "https://aaep-protocol.org/types/"
)

// The twelve core event types (chapter 4), compact, and the two replies
// (chapter 6).
const (
	TypeSessionStarted        = "aaep:agent.session.started"
	TypeSessionCompleted      = "aaep:agent.session.completed"
	TypeSessionErrored        = "aaep:agent.session.errored"
	TypeSessionCancelled      = "aaep:agent.session.cancelled"
	TypeStateChanged          = "aaep:agent.state.changed"
	TypeProgressUpdated       = "aaep:agent.progress.updated"
	TypeToolInvoked           = "aaep:agent.tool.invoked"
	TypeToolCompleted         = "aaep:agent.tool.completed"
	TypeOutputStreaming       = "aaep:agent.output.streaming"
	TypeAwaitingConfirmation  = "aaep:agent.awaiting.confirmation"
	TypeAwaitingClarification = "aaep:agent.awaiting.clarification"
	TypeHandoffRequested      = "aaep:agent.handoff.requested"

	TypeConfirmationReply  = "confirmation.reply"
	TypeClarificationReply = "clarification.reply"
)

func isReplyType(typ string) bool {
	return typ == TypeConfirmationReply || typ == TypeClarificationReply
}

// payloadReaders reads the payload of each of AAEP's own types.
var payloadReaders = map[string]func(field.Object) any{
	TypeSessionStarted:        readSessionStarted,
	TypeSessionCompleted:      readSessionCompleted,
	TypeSessionErrored:        readSessionErrored,
	TypeSessionCancelled:      readSessionCancelled,
	TypeStateChanged:          readStateChanged,
	TypeProgressUpdated:       readProgressUpdated,
	TypeToolInvoked:           readToolInvoked,
	TypeToolCompleted:         readToolCompleted,
	TypeOutputStreaming:       readOutputStreaming,
	TypeAwaitingConfirmation:  readAwaitingConfirmation,
	TypeAwaitingClarification: readAwaitingClarification,
	TypeHandoffRequested:      readHandoffRequested,
	TypeConfirmationReply:     readConfirmationReply,
	TypeClarificationReply:    readClarificationReply,
}

// Payloads hold what Countersign uses of a type's members. Fields that end in MS are in
// milliseconds; nil pointers mean "absent"; Summary is summary_normal.

func readSummary(o field.Object) string { return o.Text("summary_normal") }

// SessionStarted opens a session.
type SessionStarted struct {
	ToolsAvailable []string // nil if absent
}

func readSessionStarted(o field.Object) any {
	return &SessionStarted{ToolsAvailable: o.Texts("tools_available")}
}

// SessionCompleted ends a session that succeeded.
type SessionCompleted struct {
	DurationMS           *int64
	ToolInvocationsCount *int64
}

func readSessionCompleted(o field.Object) any {
	return &SessionCompleted{DurationMS: o.Int("duration_ms"), ToolInvocationsCount: o.Int("tool_invocations_count")}
}

// SessionErrored ends a session that failed.
type SessionErrored struct{}

func readSessionErrored(field.Object) any { return &SessionErrored{} }

// SessionCancelled ends a session that was stopped.
type SessionCancelled struct{}

func readSessionCancelled(field.Object) any { return &SessionCancelled{} }

// StateChanged reports a change of the agent's state.
type StateChanged struct {
	Summary   string
	FromState string
	ToState   string
}

func readStateChanged(o field.Object) any {
	return &StateChanged{Summary: readSummary(o), FromState: o.Text("from_state"), ToState: o.Text("to_state")}
}

// ProgressUpdated reports the agent's progress.
type ProgressUpdated struct{ Summary string }

func readProgressUpdated(o field.Object) any { return &ProgressUpdated{Summary: readSummary(o)} }

// OutputStreaming carries a piece of the agent's output.
type OutputStreaming struct {
	Chunk    string
	Position *int64 // characters
	Complete *bool
	OutputID string
	Language string
}

func readOutputStreaming(o field.Object) any {
	return &OutputStreaming{
		Chunk:    o.Text("chunk"),
		Position: o.Int("position"),
		Complete: o.Bool("complete"),
		OutputID: o.Text("output_id"),
		Language: o.Text("language"),
	}
}

// HandoffRequested asks a human or another agent to take over.
type HandoffRequested struct{ Summary string }

func readHandoffRequested(o field.Object) any { return &HandoffRequested{Summary: readSummary(o)} }

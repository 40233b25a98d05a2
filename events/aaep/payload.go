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

// CoreTypes lists the twelve core event types.
var CoreTypes = []string{
	TypeSessionStarted, TypeSessionCompleted, TypeSessionErrored, TypeSessionCancelled,
	TypeStateChanged, TypeProgressUpdated, TypeToolInvoked, TypeToolCompleted,
	TypeOutputStreaming, TypeAwaitingConfirmation, TypeAwaitingClarification, TypeHandoffRequested,
}

// payloadReaders reads the payload of each type that is AAEP's own.
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

// Summaries are the texts that most events can carry. Every field ending in MS
// of the payloads is in milliseconds; nil pointers mean "absent".
type Summaries struct {
	Terse    string
	Normal   string
	Detailed string
}

func readSummaries(o field.Object) Summaries {
	return Summaries{
		Terse:    o.Text("summary_terse"),
		Normal:   o.Text("summary_normal"),
		Detailed: o.Text("summary_detailed"),
	}
}

// SessionStarted opens a session.
type SessionStarted struct {
	Summaries
	ExpectedDurationMS *int64
	RequestedBy        string
	RequestText        string
	ToolsAvailable     []string // nil if absent
}

func readSessionStarted(o field.Object) any {
	return &SessionStarted{
		Summaries:          readSummaries(o),
		ExpectedDurationMS: o.Int("expected_duration_ms"),
		RequestedBy:        o.Text("requested_by"),
		RequestText:        o.Text("request_text"),
		ToolsAvailable:     o.Texts("tools_available"),
	}
}

// SessionCompleted ends a session that did what it was for.
type SessionCompleted struct {
	Summaries
	DurationMS           *int64
	ToolInvocationsCount *int64
	OutputSummary        string
	ResultURI            string
}

func readSessionCompleted(o field.Object) any {
	return &SessionCompleted{
		Summaries:            readSummaries(o),
		DurationMS:           o.Int("duration_ms"),
		ToolInvocationsCount: o.Int("tool_invocations_count"),
		OutputSummary:        o.Text("output_summary"),
		ResultURI:            o.Text("result_uri"),
	}
}

// SessionErrored ends a session that failed.
type SessionErrored struct {
	Summaries
	ErrorCategory   string // transient permanent requires_user unknown
	ErrorCode       string
	ErrorURI        string
	Recoverable     *bool
	RemediationHint string
}

func readSessionErrored(o field.Object) any {
	return &SessionErrored{
		Summaries:       readSummaries(o),
		ErrorCategory:   o.Text("error_category"),
		ErrorCode:       o.Text("error_code"),
		ErrorURI:        o.Text("error_uri"),
		Recoverable:     o.Bool("recoverable"),
		RemediationHint: o.Text("remediation_hint"),
	}
}

// SessionCancelled ends a session that was stopped.
type SessionCancelled struct {
	Summaries
	CancelledBy        string // user producer timeout system
	CancellationReason string
	PartialResult      string
}

func readSessionCancelled(o field.Object) any {
	return &SessionCancelled{
		Summaries:          readSummaries(o),
		CancelledBy:        o.Text("cancelled_by"),
		CancellationReason: o.Text("cancellation_reason"),
		PartialResult:      o.Text("partial_result"),
	}
}

// StateChanged says that the agent went from one state to another.
type StateChanged struct {
	Summaries
	FromState          string
	ToState            string
	ExpectedDurationMS *int64
}

func readStateChanged(o field.Object) any {
	return &StateChanged{
		Summaries:          readSummaries(o),
		FromState:          o.Text("from_state"),
		ToState:            o.Text("to_state"),
		ExpectedDurationMS: o.Int("expected_duration_ms"),
	}
}

// ProgressUpdated says how far the agent is.
type ProgressUpdated struct {
	Summaries
	Percent     *float64 // 0 to 100
	Step        *int64   // from 1
	TotalSteps  *int64
	Description string
	ETAMS       *int64
}

func readProgressUpdated(o field.Object) any {
	p, _ := o.Child("progress")
	return &ProgressUpdated{
		Summaries:   readSummaries(o),
		Percent:     p.Number("percent"),
		Step:        p.Int("step"),
		TotalSteps:  p.Int("total_steps"),
		Description: p.Text("description"),
		ETAMS:       o.Int("eta_ms"),
	}
}

// OutputStreaming carries a piece of the agent's output.
type OutputStreaming struct {
	Summaries
	Chunk        string
	Position     *int64 // characters
	Complete     *bool
	CoalesceHint string // none word sentence paragraph completion
	OutputID     string
	ContentType  string
	Language     string
}

func readOutputStreaming(o field.Object) any {
	return &OutputStreaming{
		Summaries:    readSummaries(o),
		Chunk:        o.Text("chunk"),
		Position:     o.Int("position"),
		Complete:     o.Bool("complete"),
		CoalesceHint: o.Text("coalesce_hint"),
		OutputID:     o.Text("output_id"),
		ContentType:  o.Text("content_type"),
		Language:     o.Text("language"),
	}
}

// HandoffRequested asks for somebody else to take over.
type HandoffRequested struct {
	Summaries
	Reason            string
	TargetKind        string // human specialist_agent escalation_queue
	TargetURI         string
	PackagedContext   map[string]any
	UrgencyForHandoff string // low medium high
}

func readHandoffRequested(o field.Object) any {
	return &HandoffRequested{
		Summaries:         readSummaries(o),
		Reason:            o.Text("reason"),
		TargetKind:        o.Text("target_kind"),
		TargetURI:         o.Text("target_uri"),
		PackagedContext:   o.Map("packaged_context"),
		UrgencyForHandoff: o.Text("urgency_for_handoff"),
	}
}

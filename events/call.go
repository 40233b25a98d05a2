package events

// CallState is the state of a call.
type CallState string

// The states of a call; all but open are final.
const (
	CallOpen      CallState = "open"
	CallCompleted CallState = "completed"
	CallFailed    CallState = "failed"
	CallDenied    CallState = "denied"
	CallAbandoned CallState = "abandoned" // not completed before its deadline or its session's end
	CallOrphaned  CallState = "orphaned"  // completed without a request or an announcement
)

// TimelineEntry is one step of a call.
type TimelineEntry struct {
	// Step is requested, decided, traced, invoked, completed or closed; for a confirmation or
	// approval: asked, approved, refused, cancelled or expired.
	Step    string `json:"step"`
	Seq     uint64 `json:"seq"`                // log sequence of the message
	At      Time   `json:"at"`                 // broker time
	EventID string `json:"event_id,omitempty"` // id of the event, if it has one
	// Protocol is the protocol of this step if it differs from the call's.
	Protocol string `json:"protocol,omitempty"`
}

// Call links an admitted call with its execution. Its identity is (tenant, source, session,
// tool_call_id, occurrence).
type Call struct {
	CallID         string          `json:"call_id"`                   // made of the identity
	Tenant         string          `json:"tenant"`                    // of the call
	Source         string          `json:"source"`                    // the authenticated publisher
	Protocol       string          `json:"protocol"`                  // of the first message that named the call
	Agent          string          `json:"agent,omitempty"`           // as the runtime names it
	Session        string          `json:"session,omitempty"`         // as the runtime names it; absent without one
	ToolCallID     string          `json:"tool_call_id,omitempty"`    // the runtime's id; absent where the call was paired without one
	Occurrence     int             `json:"occurrence"`                // count among the calls with this id in the session, from 1
	Tool           string          `json:"tool,omitempty"`            // the tool's name
	State          CallState       `json:"state"`                     // open, completed, failed, denied, abandoned or orphaned
	Outcome        string          `json:"outcome,omitempty"`         // in the protocol's vocabulary
	Verdict        Verdict         `json:"verdict,omitempty"`         // the effective verdict, if a decision gave it; absent without one, and if a later deny by the publisher's own gates counts
	DecisionID     string          `json:"decision_id,omitempty"`     // of the decision that gave the verdict
	DecisionSeq    uint64          `json:"decision_seq,omitempty"`    // log sequence of that decision
	ExecutionSeq   uint64          `json:"execution_seq,omitempty"`   // log sequence of the first report that the call ran
	AdmittedDigest string          `json:"admitted_digest,omitempty"` // of the arguments that were admitted
	ExecutedDigest string          `json:"executed_digest,omitempty"` // of the arguments that were executed
	Match          string          `json:"match,omitempty"`           // equal, drift, inconclusive
	Inferred       bool            `json:"inferred,omitempty"`        // paired by tool and order
	WeakScope      bool            `json:"weak_scope,omitempty"`      // no session
	Findings       []string        `json:"findings,omitempty"`        // rules that this call violates
	Timeline       []TimelineEntry `json:"timeline"`                  // the steps of the call, in log order: the first 32, and the first invoked, completed and closed

	// Protocols are all protocols in which the call was seen, sorted, if there are several: with the
	// same tenant, publisher, session, id and tool, and no contradicting arguments.
	Protocols []string `json:"protocols,omitempty"`
	// MatchReason is the reason why Match is inconclusive, or why a drift has no Differences:
	// redacted (a redaction hides a possible difference), not_kept (the arguments were too large,
	// or are no longer kept), digest_only (only the digest of the admitted ones is known),
	// digest_form (the digests cannot be compared) or not_reported (one side gave no arguments;
	// AAEP never does).
	MatchReason string `json:"match_reason,omitempty"`
	// Differences are the places where the executed arguments differ from the admitted ones,
	// without values. MoreDifferences is the number of further ones.
	Differences     []Difference `json:"differences,omitempty"`
	MoreDifferences int          `json:"more_differences,omitempty"` // number of differences that are not listed

	Attempt     int    `json:"attempt,omitempty"`      // number in a chain of retries; from 2
	RetriedFrom string `json:"retried_from,omitempty"` // call_id of the previous attempt
	RetriedTo   string `json:"retried_to,omitempty"`   // call_id of the last following attempt

	Traceparent string         `json:"trace,omitempty"`     // W3C traceparent; a claim
	Parent      *CallParent    `json:"parent,omitempty"`    // the parent of the call's session
	Durations   *CallDurations `json:"durations,omitempty"` // by the broker's clock
	Claimed     *CallClaim     `json:"claimed,omitempty"`   // the producer's claims about the call

	// Binding states how the user's confirmation was linked to the call: explicit or
	// inferred. Empty: the call rests on no confirmation.
	Binding string `json:"binding,omitempty"`
}

// Values of Call.Binding: the question names the call, or the latest fitting question was
// inferred, because AAEP does not state which call a question is about.
const (
	BindingExplicit = "explicit"
	BindingInferred = "inferred"
)

// Severity grades a finding.
type Severity string

// The severities, in ascending order. A finding of level info never counts as a violation.
const (
	SeverityInfo     Severity = "info"
	SeverityLow      Severity = "low"
	SeverityMedium   Severity = "medium"
	SeverityHigh     Severity = "high"
	SeverityCritical Severity = "critical"
)

// Severities are all severities, in ascending order.
var Severities = []Severity{SeverityInfo, SeverityLow, SeverityMedium, SeverityHigh, SeverityCritical}

// Finding reports a violated rule, the evidence, and what to do about it.
type Finding struct {
	FindingID   string   `json:"finding_id"`             // the same for the same violation, however often it is detected
	Rule        string   `json:"rule"`                   // the rule or check that is violated
	Severity    Severity `json:"severity"`               // info, low, medium, high or critical
	Tenant      string   `json:"tenant,omitempty"`       // of the evidence
	Source      string   `json:"source,omitempty"`       // the publisher that it is about
	Session     string   `json:"session,omitempty"`      // the session that it is about
	ToolCallID  string   `json:"tool_call_id,omitempty"` // the runtime's id of the call that it is about
	CallID      string   `json:"call_id,omitempty"`      // of that call's record
	EventIDs    []string `json:"event_ids"`              // ids of the events that prove it
	Seqs        []uint64 `json:"seqs,omitempty"`         // the log sequences of the evidence
	Explanation string   `json:"explanation"`            // what happened, for people
	Remedy      string   `json:"remedy,omitempty"`       // what to do about it
	DetectedAt  Time     `json:"detected_at,omitzero"`   // broker time of the message that completed the evidence
	Retracts    string   `json:"withdraws,omitempty"`    // finding_id that a late event disproved
	Enforced    bool     `json:"enforced,omitempty"`     // the tenant enforces the rule: the finding must be acted on
}

// IsRetraction reports whether the finding retracts an earlier one, which has its rule and stands in
// the same incarnation of the log. Retractions have severity info, under which only the services that
// judge the log may publish.
func (f *Finding) IsRetraction() bool { return f.Retracts != "" && f.Severity == SeverityInfo }

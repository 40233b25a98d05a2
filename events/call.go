package events

// CallState is where a call stands.
type CallState string

// The states of a call; all but open are final.
const (
	CallOpen      CallState = "open"
	CallCompleted CallState = "completed"
	CallFailed    CallState = "failed"
	CallDenied    CallState = "denied"
	CallAbandoned CallState = "abandoned" // never completed before its deadline or its session's end
	CallOrphaned  CallState = "orphaned"  // completed, but nobody had asked for or announced it
)

// TimelineEntry is one step in the life of a call.
type TimelineEntry struct {
	// Step is requested, decided, traced, invoked, completed or closed; of who had to
	// agree: asked, approved, refused, cancelled or expired.
	Step    string `json:"step"`
	Seq     uint64 `json:"seq"`
	At      Time   `json:"at"` // broker time
	EventID string `json:"event_id,omitempty"`
	// Protocol is the protocol of this step where it is not the call's.
	Protocol string `json:"protocol,omitempty"`
}

// Call links what was admitted with what ran. Its identity is (tenant, source,
// session, tool_call_id, occurrence) (architecture section 4).
type Call struct {
	CallID         string          `json:"call_id"`
	Tenant         string          `json:"tenant"`
	Source         string          `json:"source"`
	Protocol       string          `json:"protocol"`
	Agent          string          `json:"agent,omitempty"`
	Session        string          `json:"session,omitempty"`
	ToolCallID     string          `json:"tool_call_id,omitempty"`
	Occurrence     int             `json:"occurrence"`
	Tool           string          `json:"tool,omitempty"`
	State          CallState       `json:"state"`
	Outcome        string          `json:"outcome,omitempty"` // the protocol's own word
	Verdict        Verdict         `json:"verdict,omitempty"`
	DecisionID     string          `json:"decision_id,omitempty"`
	DecisionSeq    uint64          `json:"decision_seq,omitempty"`
	ExecutionSeq   uint64          `json:"execution_seq,omitempty"`
	AdmittedDigest string          `json:"admitted_digest,omitempty"`
	ExecutedDigest string          `json:"executed_digest,omitempty"`
	Match          string          `json:"match,omitempty"` // equal, drift, inconclusive
	Inferred       bool            `json:"inferred,omitempty"`
	WeakScope      bool            `json:"weak_scope,omitempty"` // no session
	Findings       []string        `json:"findings,omitempty"`   // rules broken by this call
	Timeline       []TimelineEntry `json:"timeline"`

	// Protocols are all that the call was seen in, sorted, where it is more than
	// Protocol.
	Protocols []string `json:"protocols,omitempty"`
	// MatchReason says why Match is inconclusive, or why Differences are not known
	// of a drift: see the Match constants.
	MatchReason string `json:"match_reason,omitempty"`
	// Differences are where the executed arguments are not the admitted ones:
	// places, no values. MoreDifferences is how many there are beside them.
	Differences     []Difference `json:"differences,omitempty"`
	MoreDifferences int          `json:"more_differences,omitempty"`

	Attempt     int    `json:"attempt,omitempty"`      // in a chain of retries; from 2
	RetriedFrom string `json:"retried_from,omitempty"` // call_id of the attempt before
	RetriedTo   string `json:"retried_to,omitempty"`   // call_id of the last attempt that followed

	Trace     string         `json:"trace,omitempty"`     // W3C traceparent; a claim
	Parent    *CallParent    `json:"parent,omitempty"`    // what the call's session belongs to
	Durations *CallDurations `json:"durations,omitempty"` // by the broker's clock
	Claimed   *CallClaim     `json:"claimed,omitempty"`   // what the producer says of it

	// Binding says how the user's confirmation that the call rests on was found: see
	// the Binding constants. Empty: it rests on none.
	Binding string `json:"binding,omitempty"`
}

// Values of Call.Binding: the question names the call, or it was taken to be the
// latest one that fits, as AAEP does not say which call a question is about.
const (
	BindingExplicit = "explicit"
	BindingInferred = "inferred"
)

// Severity grades a finding.
type Severity string

// The severities, from the least to the most grave. A finding of level info
// never counts as a violation.
const (
	SeverityInfo     Severity = "info"
	SeverityLow      Severity = "low"
	SeverityMedium   Severity = "medium"
	SeverityHigh     Severity = "high"
	SeverityCritical Severity = "critical"
)

// Finding says that a rule was broken, by what, and what to do about it.
type Finding struct {
	FindingID   string   `json:"finding_id"` // the same for the same violation, however often it is seen
	Rule        string   `json:"rule"`
	Severity    Severity `json:"severity"`
	Tenant      string   `json:"tenant,omitempty"`
	Source      string   `json:"source,omitempty"`
	Session     string   `json:"session,omitempty"`
	ToolCallID  string   `json:"tool_call_id,omitempty"`
	CallID      string   `json:"call_id,omitempty"`
	EventIDs    []string `json:"event_ids"`
	Seqs        []uint64 `json:"seqs,omitempty"` // the log sequences that prove it
	Explanation string   `json:"explanation"`
	Remedy      string   `json:"remedy,omitempty"`
	DetectedAt  Time     `json:"detected_at,omitzero"` // broker time of the message that completed the proof
	Retracts    string   `json:"withdraws,omitempty"`  // finding_id that a late event proved wrong
	Enforced    bool     `json:"enforced,omitempty"`   // the tenant wants the rule enforced: somebody must act on it
}

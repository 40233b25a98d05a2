package events

// Reasons why Call.Match is inconclusive, or why Call.Differences are unknown.
const (
	MatchRedacted    = "redacted"     // a redaction hides a possible difference
	MatchNotKept     = "not_kept"     // the arguments were too large, or are no longer kept
	MatchDigestOnly  = "digest_only"  // only the digest of the admitted arguments is known
	MatchDigestForm  = "digest_form"  // the digests are of forms that cannot be compared
	MatchNotReported = "not_reported" // the admitted or the executed arguments were not reported
)

// Kinds of a Difference.
const (
	DifferenceAdded   = "added"   // only among the executed arguments
	DifferenceRemoved = "removed" // only among the admitted ones
	DifferenceChanged = "changed"
)

// Difference is one place where executed arguments differ from the admitted ones. It never
// holds a value; the pointer contains names of members.
type Difference struct {
	Pointer string `json:"pointer"` // RFC 6901, below the arguments; "" is all of them
	Kind    string `json:"kind"`    // added, removed or changed
}

// Links between a session and its parent, the most reliable first.
const (
	LinkEvent   = "event"   // its correlation_id is the id of an event of the parent
	LinkSpan    = "span"    // it carries the parent call's own traceparent
	LinkGoal    = "goal"    // it names its parent session (AHP-010)
	LinkSession = "session" // its correlation_id is the id of a session of the same publisher
	LinkTrace   = "trace"   // its W3C trace was first carried by the parent
)

// CallParent is the call or session that a call's session belongs to, in the same tenant. It is
// a claim of the sub-agent.
type CallParent struct {
	CallID  string `json:"call_id,omitempty"` // if the parent is one call
	Source  string `json:"source"`            // publisher of the parent
	Session string `json:"session"`           // session of the parent
	By      string `json:"by"`                // event (by correlation_id), span (by traceparent), goal (by the parent session that it names), session (by correlation_id) or trace (a shared one); the surest first
}

// CallDurations are the times between a call's steps, in microseconds, from broker times. A
// step that did not happen, or not in this order, is left out. The verdict is the effective
// one, so the time includes waiting for an approval.
type CallDurations struct {
	Decided *int64 `json:"requested_to_decided_us,omitempty"` // from request to effective verdict
	Started *int64 `json:"decided_to_started_us,omitempty"`   // from verdict to start
	Ran     *int64 `json:"started_to_completed_us,omitempty"` // from start to completion
}

// CallClaim is what the producer claims about a call's time and its place in a chain of
// retries. Nothing is derived from it here.
type CallClaim struct {
	StartedAt   Time  `json:"started_at,omitzero"`   // when the tool began
	CompletedAt Time  `json:"completed_at,omitzero"` // when the tool ended
	DurationMS  int64 `json:"duration_ms,omitempty"` // how long it ran, in milliseconds
	Attempt     int64 `json:"attempt,omitempty"`     // number of the attempt
}

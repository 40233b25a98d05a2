package events

// Why Call.Match is inconclusive, or why Call.Differences are not known.
const (
	MatchRedacted    = "redacted"     // a redaction hides what may differ
	MatchNotKept     = "not_kept"     // the arguments were too large, or not kept any more, to look into them
	MatchDigestOnly  = "digest_only"  // of what was admitted only the digest is known
	MatchDigestForm  = "digest_form"  // the digests are of forms that cannot be compared
	MatchNotReported = "not_reported" // nothing said what was admitted, or what ran
)

// Kinds of a Difference.
const (
	DifferenceAdded   = "added"   // only among the executed arguments
	DifferenceRemoved = "removed" // only among the admitted ones
	DifferenceChanged = "changed"
)

// Difference is one place where executed arguments are not the admitted ones. It
// never holds a value; names of members are part of the pointer.
type Difference struct {
	Pointer string `json:"pointer"` // RFC 6901, below the arguments; "" is all of them
	Kind    string `json:"kind"`
}

// What links a session to its parent, the surest first.
const (
	LinkEvent   = "event"   // its correlation_id is the id of an event of the parent
	LinkSpan    = "span"    // it carries the parent call's own traceparent
	LinkGoal    = "goal"    // it names its parent session (AHP-010)
	LinkSession = "session" // its correlation_id is the id of a session of the same publisher
	LinkTrace   = "trace"   // its W3C trace was first carried by the parent
)

// CallParent is the call or the session of the same tenant that a call's session
// belongs to: a sub-agent's, seen from below. It is the sub-agent's own claim.
type CallParent struct {
	CallID  string `json:"call_id,omitempty"` // where one call is meant
	Source  string `json:"source"`
	Session string `json:"session"`
	By      string `json:"by"` // event span goal session trace
}

// CallDurations are the times between a call's steps, in microseconds, from
// broker times. What did not happen, or not in this order, is left out. The
// verdict is the one that counts, so that waiting for an approval is part of it.
type CallDurations struct {
	Decided *int64 `json:"requested_to_decided_us,omitempty"`
	Started *int64 `json:"decided_to_started_us,omitempty"`
	Ran     *int64 `json:"started_to_completed_us,omitempty"`
}

// CallClaim is what the producer itself says of a call's time and of its place
// in a chain of retries. Nothing is concluded from it here.
type CallClaim struct {
	StartedAt   Time  `json:"started_at,omitzero"`
	CompletedAt Time  `json:"completed_at,omitzero"`
	DurationMS  int64 `json:"duration_ms,omitempty"`
	Attempt     int64 `json:"attempt,omitempty"`
}

// Package events holds the wire formats of Countersign: the records that the
// pipeline itself writes onto the log, the message of the log, and, in the
// packages below it, strict decoding, canonical JSON, digests, signatures,
// subjects and the protocols' own events.
//
// Everything here is data and pure functions; no package of events does I/O.
package events

// Types of the CloudEvents that Countersign emits.
const (
	TypeDecision   = "dev.countersign.decision.v1"
	TypeCall       = "dev.countersign.call.v1"
	TypeFinding    = "dev.countersign.finding.v1"
	TypeApproval   = "dev.countersign.approval.v1"
	TypeControl    = "dev.countersign.control.v1"
	TypeCheckpoint = "dev.countersign.checkpoint.v1"
)

// Headers that Countersign reads from requests or writes on replies and log
// messages.
const (
	// Request headers, for protocols whose body has no field for them.
	HeaderSession    = "Countersign-Session"
	HeaderToolCallID = "Countersign-Tool-Call-Id"
	HeaderAgent      = "Countersign-Agent"
	HeaderTrace      = "traceparent"
	// HeaderWorkflow names the approval workflow that a request resumes; a claim.
	HeaderWorkflow = "Countersign-Workflow-Id"

	// Reply headers.
	HeaderVerdict     = "Countersign-Verdict"
	HeaderDecisionID  = "Countersign-Decision-Id"
	HeaderDecisionSeq = "Countersign-Decision-Seq"
	HeaderReceipt     = "Countersign-Receipt"
	HeaderWarning     = "Countersign-Warning" // a word of a policy that only warns; may be there several times
	HeaderKey         = "Countersign-Key"     // the KeyRecord of the key that signed the receipt, JSON

	// HeaderSignature is on every decision record in the log: a detached JWS of
	// the admitter's key over the record's bytes. A decision without a valid
	// one is finding forged_record.
	HeaderSignature = "Countersign-Signature"
)

// Reason is one evaluator's word on one request.
type Reason struct {
	Evaluator string `json:"evaluator"`        // e.g. "tool_policy", "agenthook", "aaep"
	Code      string `json:"code"`             // stable, snake_case
	Path      string `json:"path,omitempty"`   // JSON pointer into the request, where one part is to blame
	Policy    string `json:"policy,omitempty"` // "<policy>/<rule>" where a policy spoke

	// Action is "warn" or "audit" where a policy spoke that does not decide: such
	// a reason has no part in the verdict. Would is then what it would have been.
	Action string  `json:"action,omitempty"`
	Would  Verdict `json:"would,omitempty"`
}

// Count is one counter of a rate or budget condition as a decision saw it. Every
// decision of verdict allow adds Amount to it; the others add nothing.
type Count struct {
	Key      string `json:"key"`       // hashed; begins with what all counters of the tenant have in common
	WindowMS int64  `json:"window_ms"` // how long an addition counts
	Amount   int64  `json:"amount"`
	Total    int64  `json:"total"` // before this decision; -1 if it could not be told
}

// PolicyRef names exactly what decided: the policy whose rule gave the verdict,
// the revision of the policy snapshot and the digest of that snapshot.
type PolicyRef struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	Digest   string `json:"digest"`
}

// SnapshotRef names the state of a kind of documents that a decision was made
// from.
type SnapshotRef struct {
	Revision uint64 `json:"revision"`
	Digest   string `json:"digest"`
}

// MandateRef names the AUMP mandate a decision was made under.
type MandateRef struct {
	ID   string `json:"id"`
	Hash string `json:"hash"`
}

// ApprovalRef links a decision to an approval workflow.
type ApprovalRef struct {
	WorkflowID   string `json:"workflow_id"`
	Status       string `json:"status,omitempty"`
	ActionID     string `json:"action_id,omitempty"`
	RequestedAt  Time   `json:"requested_at,omitzero"`
	ExpiresAt    Time   `json:"expires_at,omitzero"`
	ResumePolicy string `json:"resume_policy,omitempty"`
}

// Decision is the record of one admission verdict (architecture section 5). It
// never holds a raw argument; its digests are keyed by the tenant, except in
// files written for offline checks, which may carry unkeyed ones.
type Decision struct {
	DecisionID    string       `json:"decision_id"` // UUIDv7
	EventID       string       `json:"event_id,omitempty"`
	Tenant        string       `json:"tenant"`
	Protocol      string       `json:"protocol"`
	Source        string       `json:"source"` // the authenticated publisher
	Agent         string       `json:"agent,omitempty"`
	Session       string       `json:"session,omitempty"`
	ToolCallID    string       `json:"tool_call_id,omitempty"`
	Occurrence    int          `json:"occurrence,omitempty"` // as far as the admitter knew; the call record is authoritative
	Tool          string       `json:"tool,omitempty"`
	Action        string       `json:"action,omitempty"`
	ResourceKind  string       `json:"resource_kind,omitempty"`
	ArgsDigest    string       `json:"args_digest,omitempty"`
	RequestDigest string       `json:"request_digest"`
	Verdict       Verdict      `json:"verdict"`
	NativeVerdict string       `json:"native_verdict,omitempty"`
	Reasons       []Reason     `json:"reasons"`
	Policy        *PolicyRef   `json:"policy,omitempty"`
	Mandate       *MandateRef  `json:"mandate,omitempty"`
	Approval      *ApprovalRef `json:"approval,omitempty"`
	ReceivedAt    Time         `json:"received_at,omitzero"`
	DecidedAt     Time         `json:"decided_at"`
	ExpiresAt     Time         `json:"expires_at,omitzero"`
	ReceiptHash   string       `json:"receipt_hash,omitempty"`   // sha256 of the compact receipt
	Durability    string       `json:"durability,omitempty"`     // fsync replicated interval memory
	Trace         string       `json:"trace,omitempty"`          // W3C traceparent
	CanonicalTool string       `json:"canonical_tool,omitempty"` // the tool catalogue's name for Tool, where it has one
	Publishers    *SnapshotRef `json:"publishers,omitempty"`     // the tenant's manifests and tool catalogue, where it has any
	Counts        []Count      `json:"counts,omitempty"`         // what rate and budget conditions looked at

	// Inputs is what else the service knew; see DecisionInputs.
	Inputs *DecisionInputs `json:"inputs,omitempty"`
}

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
}

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
	Withdraws   string   `json:"withdraws,omitempty"`  // finding_id that a late event proved wrong
	Enforced    bool     `json:"enforced,omitempty"`   // the tenant wants the rule enforced: somebody must act on it
}

// Approval is the record of one step of an approval workflow.
type Approval struct {
	WorkflowID   string `json:"workflow_id"`
	Tenant       string `json:"tenant"`
	Status       string `json:"status"` // pending approved denied expired cancelled consumed
	ActionDigest string `json:"action_digest"`
	Source       string `json:"source,omitempty"`
	Session      string `json:"session,omitempty"`
	ToolCallID   string `json:"tool_call_id,omitempty"`
	DecisionID   string `json:"decision_id,omitempty"`
	Approver     string `json:"approver,omitempty"`
	Reason       string `json:"reason,omitempty"`
	RequestedAt  Time   `json:"requested_at"`
	DecidedAt    Time   `json:"decided_at,omitzero"`
	ExpiresAt    Time   `json:"expires_at,omitzero"`

	Step           int         `json:"step,omitempty"`            // counts the changes of the workflow, from 1
	Act            string      `json:"act,omitempty"`             // open join vote approve deny cancel expire consume
	ActionID       string      `json:"action_id,omitempty"`       // short form of ActionDigest
	Tool           string      `json:"tool,omitempty"`            //
	Calls          []string    `json:"tool_call_ids,omitempty"`   // all calls that wait for it
	Policy         *PolicyRef  `json:"policy,omitempty"`          // that asked
	Mandate        *MandateRef `json:"mandate,omitempty"`         //
	ReviewerGroups []string    `json:"reviewer_groups,omitempty"` // of which a reviewer must be in one
	Quorum         int         `json:"quorum,omitempty"`          // reviewers that must approve
	Approvers      []string    `json:"approvers,omitempty"`       // who has
	PreviewDigest  string      `json:"preview_digest,omitempty"`  // keyed; of what a reviewer is shown
	ResumePolicy   string      `json:"resume_policy,omitempty"`   //
	ChangedAt      Time        `json:"changed_at,omitzero"`       // when the act was done, by the admitter's clock
	// Refused is why an attempt to resolve the workflow changed nothing: Approver
	// tried Act, and Status is what it was and is.
	Refused string `json:"refused,omitempty"`
}

// ResolveAttempt records a reviewer's request that concerns no workflow that
// is known, or cannot be read.
type ResolveAttempt struct {
	Tenant        string `json:"tenant"`
	User          string `json:"user"`
	Action        string `json:"action,omitempty"`
	WorkflowID    string `json:"workflow_id,omitempty"` // if it can be one of ours
	RequestDigest string `json:"request_digest"`        // keyed
	Refused       string `json:"refused"`
	At            Time   `json:"at"`
}

// Kinds of control records (the last token of their subject).
const (
	ControlTick      = "tick"
	ControlCursor    = "cursor"
	ControlPolicy    = "policy"
	ControlMandate   = "mandate"
	ControlKey       = "key"
	ControlPublisher = "publisher"
	ControlRules     = "rules"
	ControlResolve   = "resolve" // a ResolveAttempt
	ControlRedaction = "redaction"

	// ControlKeyRetired has a kind of its own: a reader that knows only keys must not
	// take a retirement for one.
	ControlKeyRetired = "key_retired"
)

// Tick lets time pass on an idle shard: its broker time is what counts.
type Tick struct {
	Shard string `json:"shard"`
	Due   Time   `json:"due"` // the deadline that made the tick necessary
}

// Cursor is the correlator's position and its fence. It is written in one
// atomic batch with the outputs of the messages up to Consumed.
type Cursor struct {
	Shard    string `json:"shard"`
	Consumed uint64 `json:"consumed"` // last log sequence all of whose outputs are in the log
	Partial  int    `json:"partial"`  // how many outputs of sequence Consumed+1 are in the log as well
	Outputs  int    `json:"outputs"`  // outputs in this batch, the cursor not counted
	Writer   string `json:"writer"`   // which correlator wrote it
}

// PolicyChange records that an admitter now decides from another snapshot.
type PolicyChange struct {
	Writer   string      `json:"writer"`
	Revision uint64      `json:"revision"`
	Digest   string      `json:"digest"`
	Policies []PolicyRef `json:"policies"`
	Error    string      `json:"error,omitempty"` // why a candidate was refused; everything is denied meanwhile

	// Who pushed the set, and why, as they say themselves; empty for documents
	// that were put into the bucket one by one.
	Author     string `json:"author,omitempty"`
	Message    string `json:"message,omitempty"`
	PushedAt   Time   `json:"pushed_at,omitzero"`
	RollbackTo uint64 `json:"rollback_to,omitempty"`
	// Documents are the policies as they were written, so that every decision can
	// be made again from the log alone. Omitted says that they were too large for
	// the record; the bucket may still have them.
	Documents []PolicyDocument `json:"documents,omitempty"`
	Omitted   bool             `json:"documents_omitted,omitempty"`
}

// PublisherChange records that an admitter now decides from other publisher
// manifests, registrations and tool catalogues.
type PublisherChange struct {
	Writer    string              `json:"writer"`
	Revision  uint64              `json:"revision"`
	Digest    string              `json:"digest"`
	Documents []PublisherDocument `json:"documents"`
	Error     string              `json:"error,omitempty"` // what cannot be used; everything of its tenant is denied meanwhile
}

// PublisherDocument names one document that is in force.
type PublisherDocument struct {
	Tenant   string `json:"tenant"`
	Name     string `json:"name"` // "<kind>.<name>"
	Revision uint64 `json:"revision"`
	Digest   string `json:"digest"`
}

// RedactionChange records that an auditor now redacts by other policies. Each
// record of evidence names the one that it was made by.
type RedactionChange struct {
	Writer   string         `json:"writer"`
	Store    string         `json:"store"`    // the incarnation of the bucket
	Revision uint64         `json:"revision"` // its last sequence
	Policies []RedactionRef `json:"policies"` // of tenants that have one, by tenant
}

// RedactionRef names the redaction policy of one tenant.
type RedactionRef struct {
	Tenant string `json:"tenant"`
	Policy string `json:"policy,omitempty"` // its id
	Error  string `json:"error,omitempty"`  // why it cannot be used; the tenant's bodies are withheld meanwhile
}

// KeyRecord publishes a verification key. Vouch is a signed note of the
// checkpoint key over VouchText.
type KeyRecord struct {
	KeyID     string `json:"kid"`
	Use       string `json:"use"` // receipt
	Algorithm string `json:"alg"` // EdDSA
	PublicKey string `json:"public_key"`
	CreatedAt Time   `json:"created_at"`
	Vouch     string `json:"vouch,omitempty"`
}

// VouchText is the text that the checkpoint key signs to vouch for k.
func (k KeyRecord) VouchText() string {
	return "countersign/key/v1\n" + k.Use + " " + k.KeyID + " " + k.Algorithm + " " + k.PublicKey + "\n"
}

// KeyRetirement takes a verification key back. From its place in the log on
// nothing counts that the key signs; what it signed before stays valid. It
// cannot be undone. Vouch is a signed note of the checkpoint key over VouchText.
type KeyRetirement struct {
	KeyID     string `json:"kid"`
	Use       string `json:"use"`        // receipt
	RetiredAt Time   `json:"retired_at"` // when it was signed, by the clock there; the log's order is what counts
	Vouch     string `json:"vouch,omitempty"`
}

// VouchText is the text that the checkpoint key signs to retire a key. Its first
// line is another than that of every other text that key signs.
func (k KeyRetirement) VouchText() string {
	return "countersign/key-retired/v1\n" + k.Use + " " + k.KeyID + " " + k.RetiredAt.String() + "\n"
}

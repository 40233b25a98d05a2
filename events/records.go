// Package events holds the wire formats of Countersign: the records that the pipeline writes to
// the log, and the message of the log. The services, the command line and the client share
// them. The packages below it hold strict decoding, canonical JSON, digests, signatures,
// subjects and the protocols' own events. Begin reading with Decision, Call and Finding.
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
	// Request headers, for protocols without these fields in the body.
	HeaderSession    = "Countersign-Session"
	HeaderToolCallID = "Countersign-Tool-Call-Id"
	HeaderAgent      = "Countersign-Agent"
	HeaderTrace      = "traceparent"
	// HeaderPublisher names the publisher that a gateway speaks for. It is read from gateways only.
	HeaderPublisher = "Countersign-Publisher"
	// HeaderGateway names, on the log, the gateway through which a request or an event came. Only
	// Countersign's services write it.
	HeaderGateway = "Countersign-Gateway"
	// HeaderWorkflow names the approval workflow that a request resumes; a claim.
	HeaderWorkflow = "Countersign-Workflow-Id"

	// Reply headers.
	HeaderVerdict     = "Countersign-Verdict"
	HeaderDecisionID  = "Countersign-Decision-Id"
	HeaderDecisionSeq = "Countersign-Decision-Seq"
	HeaderReceipt     = "Countersign-Receipt"
	HeaderWarning     = "Countersign-Warning" // a message of a policy that only warns; may occur several times
	HeaderKey         = "Countersign-Key"     // the KeyRecord of the key that signed the receipt, JSON
	HeaderMode        = "Countersign-Mode"    // ModeObserve on answers of an admitter that only observes; never read from requests

	// HeaderSignature is on every record that the admitter writes to the log and its key answers
	// for (decisions, approvals, aioc's trace events, its findings): a detached JWS over the
	// record's bytes. A decision without a valid one causes finding forged_record.
	HeaderSignature = "Countersign-Signature"

	// HeaderSettings is on every cursor: the correlator's settings that affect its findings.
	HeaderSettings = "Countersign-Settings"
)

// Reason is one reason of one evaluator for one request.
type Reason struct {
	Evaluator string `json:"evaluator"`        // e.g. "tool_policy", "agenthook", "aaep"
	Code      string `json:"code"`             // stable, snake_case
	Path      string `json:"path,omitempty"`   // JSON pointer into the request, where one part caused it
	Policy    string `json:"policy,omitempty"` // policy and rule, as POLICY/RULE, if a policy gave the reason

	// Action is "warn" or "audit" if the policy does not decide, and "observe" if none does:
	// such a reason does not affect the verdict. WouldVerdict is the verdict that it would have
	// given.
	Action       string  `json:"action,omitempty"`
	WouldVerdict Verdict `json:"would,omitempty"` // the verdict that the reason would have given
}

// Count is one counter of a rate or budget condition as a decision saw it. Every decision of
// verdict allow adds Amount to it; other decisions add nothing.
type Count struct {
	Key      string `json:"key"`       // hashed; begins with the part shared by all counters of the tenant
	WindowMS int64  `json:"window_ms"` // how long an addition counts
	Amount   int64  `json:"amount"`    // what this call adds if it is allowed
	Total    int64  `json:"total"`     // before this decision; -1 if unknown
}

// PolicyRef identifies the deciding policy: the policy of the rule that gave the verdict, the
// revision of the policy snapshot and its digest.
type PolicyRef struct {
	Name     string `json:"name"`     // of the deciding policy
	Revision uint64 `json:"revision"` // of the snapshot of policies
	Digest   string `json:"digest"`   // of the snapshot
}

// SnapshotRef identifies the state of a kind of documents that a decision used.
type SnapshotRef struct {
	Revision uint64 `json:"revision"` // of the bucket
	Digest   string `json:"digest"`   // of the documents
}

// MandateRef names the AUMP mandate a decision was made under.
type MandateRef struct {
	ID   string `json:"id"`   // of the mandate
	Hash string `json:"hash"` // of its text
}

// ApprovalRef links a decision to an approval workflow.
type ApprovalRef struct {
	WorkflowID   string `json:"workflow_id"`             // the workflow to wait for, or the one that was used
	Status       string `json:"status,omitempty"`        // of the workflow after this decision
	ActionID     string `json:"action_id,omitempty"`     // short form of the digest of what is asked
	RequestedAt  Time   `json:"requested_at,omitzero"`   // when the workflow was opened
	ExpiresAt    Time   `json:"expires_at,omitzero"`     // when the workflow ends
	ResumePolicy string `json:"resume_policy,omitempty"` // how the runtime asks again after the approval
}

// Decision is the record of one admission verdict. The header Countersign-Signature signs exactly
// its bytes. It never holds a raw argument; its digests are keyed by the session, or by the tenant where there
// is no session, except in files for offline checks, which may have unkeyed ones.
type Decision struct {
	DecisionID    string       `json:"decision_id"`              // UUIDv7
	EventID       string       `json:"event_id,omitempty"`       // id of the event in the request, if it has a valid one
	Tenant        string       `json:"tenant"`                   // by the account of the caller
	Protocol      string       `json:"protocol"`                 // of the request
	Source        string       `json:"source"`                   // the authenticated publisher
	Gateway       string       `json:"gateway,omitempty"`        // the NATS user of the gateway that spoke for Source, if one did
	Agent         string       `json:"agent,omitempty"`          // as the request names it
	Session       string       `json:"session,omitempty"`        // as the request names it
	ToolCallID    string       `json:"tool_call_id,omitempty"`   // the runtime's id of the call
	Occurrence    int          `json:"occurrence,omitempty"`     // as known to the admitter; the call record is authoritative
	Tool          string       `json:"tool,omitempty"`           // its name in the request
	Action        string       `json:"action,omitempty"`         // the proposed action, if the request names one
	ResourceKind  string       `json:"resource_kind,omitempty"`  // kind of resource that the action is about
	ArgsDigest    string       `json:"args_digest,omitempty"`    // of the arguments' RFC 8785 form; absent without arguments
	RequestDigest string       `json:"request_digest"`           // of the request's body as it was sent
	Verdict       Verdict      `json:"verdict"`                  // allow, ask, defer or deny
	NativeVerdict string       `json:"native_verdict,omitempty"` // the verdict in the protocol's own word
	Reasons       []Reason     `json:"reasons"`                  // all reasons of all evaluators
	Policy        *PolicyRef   `json:"policy,omitempty"`         // the deciding policy, if one decided
	Mandate       *MandateRef  `json:"mandate,omitempty"`        // the AUMP mandate that the request names
	Approval      *ApprovalRef `json:"approval,omitempty"`       // the workflow of an ask or defer, or of the approval that was used
	ReceivedAt    Time         `json:"received_at,omitzero"`     // when the admitter received the request, by its clock
	DecidedAt     Time         `json:"decided_at"`               // by the admitter's clock
	ExpiresAt     Time         `json:"expires_at,omitzero"`      // of the allow, or of the workflow
	ReceiptHash   string       `json:"receipt_hash,omitempty"`   // sha256 of the compact receipt
	Durability    string       `json:"durability,omitempty"`     // of the acknowledgement: fsync outlives any power failure, replicated none of all servers; interval and memory less
	Traceparent   string       `json:"trace,omitempty"`          // W3C traceparent
	CanonicalTool string       `json:"canonical_tool,omitempty"` // the tool catalogue's name for Tool, if any
	Publishers    *SnapshotRef `json:"publishers,omitempty"`     // the tenant's manifests and tool catalogue, if any
	Counts        []Count      `json:"counts,omitempty"`         // counters that rate and budget conditions read

	// Mode is "observe" if the admitter only observed the tenant's policies. Would is then the
	// verdict of the policies, which Verdict does not contain; "" if there was none, or if it was
	// enforced (a refusal of bad input, a failure).
	Mode  string  `json:"mode,omitempty"`
	Would Verdict `json:"would,omitempty"` // the verdict of the policies in mode observe

	// Inputs are what else the decision was made from.
	Inputs *DecisionInputs `json:"inputs,omitempty"`
}

// ModeObserve is the mode of an admitter that evaluates and records a tenant's policies and does
// not enforce their verdicts. The mode of every other decision is "".
const ModeObserve = "observe"

// EnforcedVerdict is the verdict that the decision would have had if the policies had been
// enforced. Only in mode observe can it differ from Verdict.
func (d Decision) EnforcedVerdict() Verdict {
	if d.Would == "" {
		return d.Verdict
	}
	return Strictest(d.Verdict, d.Would)
}

// ObservedOnly reports whether the policies would have refused what the verdict lets pass: the
// verdict is then no permission of theirs.
func (d Decision) ObservedOnly() bool { return d.EnforcedVerdict() != d.Verdict }

// MandateChange records that an admitter decides under other mandates, revocations or signing
// keys. The first of an admitter has what changed since the last one on the log, except for what was deleted meanwhile.
type MandateChange struct {
	Writer   string        `json:"writer"`   // the admitter's process
	Revision uint64        `json:"revision"` // of the mandates bucket; the one before in all but the last of several records of a change
	Digest   string        `json:"digest"`   // of the complete state; that after the last record, if one revision has several records
	Mandates int           `json:"mandates"` // in force
	Changes  []MandateStep `json:"changes"`  // what changed; may be empty for the state at a start
}

// MandateStep is one change. It names the mandate by id and hash and holds none of its content.
type MandateStep struct {
	Change     string `json:"change"`               // put deleted revoked revocation_deleted keys
	Tenant     string `json:"tenant"`               // as a token of the bucket's keys
	MandateID  string `json:"mandate_id,omitempty"` // of the mandate; absent for keys
	Hash       string `json:"hash,omitempty"`       // of the mandate; of the document for keys
	Author     string `json:"author,omitempty"`     // unverified
	By         string `json:"by,omitempty"`         // of a revocation: operator or principal, as the server permits the key to be written
	Unreadable bool   `json:"unreadable,omitempty"` // what was put cannot be used
}

package agenthook

import (
	"strings"

	"github.com/countersign-dev/countersign/events/internal/field"
)

// AdmissionVerdict is metadata.admission_verdict (AHP-013), of events and replies.
type AdmissionVerdict struct {
	Verdict        string `json:"verdict"` // allow deny ask
	Reason         string `json:"reason,omitempty"`
	Subscriber     string `json:"subscriber,omitempty"`
	ClaimReference string `json:"claim_reference,omitempty"`
	PolicyID       string `json:"policy_id,omitempty"`
	DecidedAt      string `json:"decided_at,omitempty"`
}

// Approval is metadata.approval (AHP-007), of events and replies. Required must not be nil when
// an approval is written.
type Approval struct {
	Required     *bool  `json:"required"`
	Status       string `json:"status"` // pending approved denied expired cancelled
	WorkflowID   string `json:"workflow_id,omitempty"`
	ActionID     string `json:"action_id,omitempty"`
	Department   string `json:"department,omitempty"`
	ReviewerRef  string `json:"reviewer_ref,omitempty"`
	RequestedAt  string `json:"requested_at,omitempty"`
	DecidedAt    string `json:"decided_at,omitempty"`
	ExpiresAt    string `json:"expires_at,omitempty"`
	ResumePolicy string `json:"resume_policy,omitempty"` // retry_same_event retry_with_workflow_id publisher_waits manual_retry
	DecisionRef  string `json:"decision_ref,omitempty"`
	ApprovalURL  string `json:"approval_url,omitempty"`
}

// ToolIdentity is metadata.tool_identity (AHP-013).
type ToolIdentity struct {
	CanonicalName string
	ProviderName  string
	Source        string
	SchemaHash    string
}

// ProviderTranslation is metadata.provider_translation (AHP-013).
type ProviderTranslation struct {
	ProviderSurface string
	ModelFacingTool string
	Provider        string
	AdapterVersion  string
	SchemaHash      string
}

// Risk is metadata.risk (AHP-013).
type Risk struct {
	RiskClass             string // open vocabulary
	RequiresHumanApproval *bool
	DataExfiltrationRisk  string // none low moderate high unknown
	WritesExternalSystem  *bool
	Idempotent            *bool
	ContainsSecret        *bool
}

// Validation is metadata.validation (AHP-013).
type Validation struct {
	Status     string // passed failed skipped unknown
	Validator  string
	SchemaHash string
}

// Redaction is metadata.redaction (AHP-013).
type Redaction struct {
	Applied  *bool
	Fields   []string
	PolicyID string
}

// Retry is metadata.retry (AHP-013).
type Retry struct {
	Attempt            *int64 // from 1
	PreviousToolCallID string
	Reason             string
}

// Execution is metadata.execution of a Post event (AHP-013).
type Execution struct {
	Outcome        string // succeeded failed blocked denied cancelled timed_out unknown
	StartedAt      string
	CompletedAt    string
	DurationMS     *int64
	ExitCode       *int64
	ResultRef      string
	ResultHash     string
	MutationReason string
}

// DidNotRun reports whether the outcome states that nothing ran (H-06 of the digest), and
// nothing contradicts it. A call that was cancelled, or timed out, after its start has run: a
// start time shows that, and so does executed, which means that the event names executed
// arguments. Publishers give both for denied calls too, so they do not count there.
func (x Execution) DidNotRun(executed bool) bool {
	switch x.Outcome {
	case "denied", "blocked":
		return true
	case "cancelled", "timed_out":
		return x.StartedAt == "" && !executed
	}
	return false
}

// FailMode is a publisher's report, in an ErrorOccurred, that it decided by itself because no
// verdict came (SPEC section 4).
type FailMode struct {
	Triggered bool
	Outcome   string // allow deny
}

// Blocks are the blocks of metadata; missing ones are nil. Some of their fields are used by no
// code: reading them is what checks their JSON types. The envelope's schema says only that metadata
// is an object, and the schemas of the blocks are for events of the action-governance profile.
type Blocks struct {
	AdmissionVerdict    *AdmissionVerdict
	Approval            *Approval
	ToolIdentity        *ToolIdentity
	ProviderTranslation *ProviderTranslation
	Risk                *Risk
	Validation          *Validation
	Redaction           *Redaction
	Retry               *Retry
	Execution           *Execution
	FailMode            *FailMode
}

// schemaHash reads a block's schema_hash in lower case: its form permits both cases of hexadecimal digits.
// SchemaHashes are the hashes of the tool's schema that the blocks state.
func (b Blocks) SchemaHashes() (list []string) {
	if x := b.ToolIdentity; x != nil && x.SchemaHash != "" {
		list = append(list, x.SchemaHash)
	}
	if x := b.ProviderTranslation; x != nil && x.SchemaHash != "" {
		list = append(list, x.SchemaHash)
	}
	if x := b.Validation; x != nil && x.SchemaHash != "" {
		list = append(list, x.SchemaHash)
	}
	return list
}

func schemaHash(o field.Object) string { return strings.ToLower(o.Text("schema_hash")) }

func readBlocks(meta field.Object) Blocks {
	return Blocks{
		AdmissionVerdict:    readBlock(meta, "admission_verdict", readVerdict),
		Approval:            readBlock(meta, "approval", readApproval),
		ToolIdentity:        readBlock(meta, "tool_identity", readIdentity),
		ProviderTranslation: readBlock(meta, "provider_translation", readTranslation),
		Risk:                readBlock(meta, "risk", readRisk),
		Validation:          readBlock(meta, "validation", readValidation),
		Redaction:           readBlock(meta, "redaction", readRedaction),
		Retry:               readBlock(meta, "retry", readRetry),
		Execution:           readBlock(meta, "execution", readExecution),
		FailMode:            readFailMode(meta),
	}
}

func readBlock[T any](meta field.Object, key string, read func(field.Object) T) *T {
	o, ok := meta.Child(key)
	if !ok {
		return nil
	}
	v := read(o)
	return &v
}

func readVerdict(o field.Object) AdmissionVerdict {
	return AdmissionVerdict{
		Verdict:        o.Text("verdict"),
		Reason:         o.Text("reason"),
		Subscriber:     o.Text("subscriber"),
		ClaimReference: o.Text("claim_reference"),
		PolicyID:       o.Text("policy_id"),
		DecidedAt:      o.Text("decided_at"),
	}
}

func readApproval(o field.Object) Approval {
	return Approval{
		Required:     o.Bool("required"),
		Status:       o.Text("status"),
		WorkflowID:   o.Text("workflow_id"),
		ActionID:     o.Text("action_id"),
		Department:   o.Text("department"),
		ReviewerRef:  o.Text("reviewer_ref"),
		RequestedAt:  o.Text("requested_at"),
		DecidedAt:    o.Text("decided_at"),
		ExpiresAt:    o.Text("expires_at"),
		ResumePolicy: o.Text("resume_policy"),
		DecisionRef:  o.Text("decision_ref"),
		ApprovalURL:  o.Text("approval_url"),
	}
}

func readIdentity(o field.Object) ToolIdentity {
	return ToolIdentity{
		CanonicalName: o.Text("canonical_name"),
		ProviderName:  o.Text("provider_name"),
		Source:        o.Text("source"),
		SchemaHash:    schemaHash(o),
	}
}

func readTranslation(o field.Object) ProviderTranslation {
	return ProviderTranslation{
		ProviderSurface: o.Text("provider_surface"),
		ModelFacingTool: o.Text("model_facing_tool"),
		Provider:        o.Text("provider"),
		AdapterVersion:  o.Text("adapter_version"),
		SchemaHash:      schemaHash(o),
	}
}

func readRisk(o field.Object) Risk {
	return Risk{
		RiskClass:             o.Text("risk_class"),
		RequiresHumanApproval: o.Bool("requires_human_approval"),
		DataExfiltrationRisk:  o.Text("data_exfiltration_risk"),
		WritesExternalSystem:  o.Bool("writes_external_system"),
		Idempotent:            o.Bool("idempotent"),
		ContainsSecret:        o.Bool("contains_secret"),
	}
}

func readValidation(o field.Object) Validation {
	return Validation{
		Status:     o.Text("status"),
		Validator:  o.Text("validator"),
		SchemaHash: schemaHash(o),
	}
}

func readRedaction(o field.Object) Redaction {
	return Redaction{Applied: o.Bool("applied"), Fields: o.Texts("fields"), PolicyID: o.Text("policy_id")}
}

func readRetry(o field.Object) Retry {
	return Retry{
		Attempt:            o.Int("attempt"),
		PreviousToolCallID: o.Text("previous_tool_call_id"),
		Reason:             o.Text("reason"),
	}
}

func readExecution(o field.Object) Execution {
	return Execution{
		Outcome:        o.Text("outcome"),
		StartedAt:      o.Text("started_at"),
		CompletedAt:    o.Text("completed_at"),
		DurationMS:     o.Int("duration_ms"),
		ExitCode:       o.Int("exit_code"),
		ResultRef:      o.Text("result_ref"),
		ResultHash:     o.Text("result_hash"),
		MutationReason: o.Text("mutation_reason"),
	}
}

// readFailMode reads the block only if metadata states that the fail mode fired: its member
// "outcome" has other meanings elsewhere.
func readFailMode(meta field.Object) *FailMode {
	if !meta.Get("error_type").IsText(errorFailMode) && meta.Kind("fail_mode_triggered") == "" {
		return nil
	}
	triggered := meta.Bool("fail_mode_triggered")
	return &FailMode{Triggered: triggered != nil && *triggered, Outcome: meta.Text("outcome")}
}

const errorFailMode = "admission_fail_mode"

// HasGovernanceBlock reports whether the event uses the action-governance profile: it has any
// block of AHP-013.
func (e *Event) HasGovernanceBlock() bool {
	b := &e.Blocks
	return b.ToolIdentity != nil || b.ProviderTranslation != nil || b.Risk != nil || b.Validation != nil || b.Redaction != nil || b.Retry != nil || b.Execution != nil
}

// RedactedFields are the paths that the publisher states as redacted: metadata.redaction.fields
// if its applied is true, nil otherwise. Their syntax is the publisher's.
func (e *Event) RedactedFields() []string {
	if r := e.Redaction; r != nil && r.Applied != nil && *r.Applied {
		return r.Fields
	}
	return nil
}

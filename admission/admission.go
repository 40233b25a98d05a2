// Package admission decides whether a proposed tool call may run. It is the pure
// core of the admitter and of "countersign evaluate": a request, a snapshot of
// the policies and the inputs of one decision go in, a decision record, the
// claims of its receipt and the native reply come out. There is no clock, no
// randomness, no I/O and no state here; the same inputs give the same bytes.
//
// A decision is made by the protocol's own evaluator (packages below this one
// that implement call.Protocol) and by the tool policies. All of them always
// speak, the strictest verdict stands, every reason is kept. Whatever goes wrong
// is a deny with a stable reason code: nothing here ever fails open.
package admission

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/aaep"
	"github.com/countersign-dev/countersign/admission/aana"
	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/aioc"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// Evaluator is the name under which this package itself gives reasons.
const Evaluator = "admission"

// Reason codes of requests in any protocol.
const (
	CodeUnknownTenant    = "unknown_tenant"    // the admitter does not know the tenant
	CodeUnknownSource    = "unknown_source"    // the request has no authenticated publisher
	CodeUnknownProtocol  = "unknown_protocol"  // the subject names a protocol that has no admission
	CodeInternal         = "internal_error"    // the admitter failed on this request; its log says why
	CodeAuditUnavailable = "audit_unavailable" // request or decision could not be recorded durably
	CodeTooLarge         = "too_large"         // the request is too large for a copy of it to be kept
)

// DefaultApprovalLifetime is how long an approval workflow stays open unless a
// policy says otherwise.
const DefaultApprovalLifetime = 15 * time.Minute

// ResumePolicy is what a publisher does once its workflow is approved: it asks
// again with the same event.
const ResumePolicy = "retry_same_event"

// protocols are the admission protocols by their subject token.
var protocols = map[string]call.Protocol{
	agenthook.Name:   agenthook.Evaluator{},
	aaep.Name:        aaep.Evaluator{},
	aioc.NameTool:    aioc.Tool{},
	aioc.NameHandoff: aioc.Handoff{},
	aana.Name:        aana.Evaluator{},
	aump.Name:        aump.Evaluator{},
}

// Protocols lists the protocol tokens that Decide knows, in order.
func Protocols() []string { return slices.Sorted(maps.Keys(protocols)) }

// Request is an admission request as it arrived. Tenant and Source are what was
// authenticated, never what the body says. The caller must not change Header and
// Body before Outcome.Reply.
type Request struct {
	Tenant     string
	Source     string
	Protocol   string
	Header     map[string][]string
	Body       []byte
	ReceivedAt time.Time
}

// Inputs is what one decision needs from outside. All of it is required unless
// it says otherwise; a missing piece is deny internal_error.
type Inputs struct {
	Now         time.Time
	DecisionID  string // UUIDv7
	Salt        []byte // receipt.SaltSize fresh random bytes
	Nonce       string // fresh and random
	TenantKey   []byte // digest.Master.Tenant, of what has no session; see Unkeyed
	Occurrence  int    // as far as known; 0 if it is not
	Durability  string // fsync replicated interval memory; may be empty
	KnownTenant bool

	// SessionSecret gives the key of the digests of a request that has a session. If ready
	// is false, see Outcome.Wants. Where it is nil, Session is the key; where there is
	// none, the tenant's takes its place.
	SessionSecret func(tenant, session string) (key *digest.Session, ready bool)
	Session       *digest.Session

	// PlainDigests makes the digests plain SHA-256 of their input, which gives short
	// secrets away. It is for offline decisions only, where whoever reads the
	// digest has the request.
	PlainDigests bool

	// Confirmations is who knows about accepted confirmations; nil knows of none.
	Confirmations call.Confirmations

	// Mandates is what is known about AUMP mandates; the zero Records knows of none,
	// and every request that names one is denied.
	Mandates mandate.Records

	// Context is the request's deadline for the policies' conditions; nil for none.
	// See Outcome.Expired.
	Context context.Context

	// Approvals, Counters and Publishers are nil where nothing is known of any.
	Approvals  approval.Index
	Counters   policy.Counters
	Publishers publisher.Registry
}

// Profile says how strictly a protocol that has a reference of its own is read.
type Profile = call.Profile

// The profiles; the zero Profile is ProfileHardened.
const (
	ProfileHardened     = call.ProfileHardened
	ProfileReferenceSDK = call.ProfileReferenceSDK
)

// Snapshot is the configuration that decides. It is immutable. The nil Snapshot
// denies everything.
type Snapshot struct {
	Policies  *policy.Set
	PolicyErr error   // why there is no usable set; denies everything, whatever Policies holds
	Revision  uint64  // of the policies, as the store counts them
	Strict    bool    // AAEP: high-risk invocations need a confirmation too (AAEP-C-101)
	Profile   Profile // AANA, AUMP: whether the references' known holes are closed; the zero Profile closes them
}

// Outcome is a decision on its way out. The service may still set
// Decision.ReceiptHash, and may call Fail; nothing else in it may be changed
// before Reply.
type Outcome struct {
	Decision events.Decision
	Session  string // for subjects; "" if the request has none

	// Expired says that Inputs.Context ended before the policies were evaluated. The
	// verdict is deny, but it must not be recorded: made again it can be another one.
	Expired bool

	// Claims are ready for receipt.Issue unless NoReceipt: an observational event
	// is answered allow, and nobody may take that for leave to run something; an
	// unknown tenant or source gets no receipt either.
	Claims    receipt.Claims
	NoReceipt bool

	// Malformed says that the request was not valid for its protocol, or could
	// not be judged at all. ErrorCode and ErrorDescription are then for the micro
	// error headers: a three-digit code and a reason code with its JSON pointer.
	Malformed        bool
	ErrorCode        string
	ErrorDescription string

	// Reservations must be taken before the decision is recorded.
	Reservations Reservations

	protocol    call.Protocol // nil: the generic refusal
	request     Request
	call        call.Call
	mandateCall *call.Call // as the evaluator of the mandate read it that the call names; nil if that is the call itself
	ruling      call.Ruling
	explanation string // why, for the caller

	session    *digest.Session // what its digests are made under
	keyMissing bool            // its session's key
}

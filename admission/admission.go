// Package admission decides whether a proposed tool call may run. It is the pure core of the
// admitter and of "countersign evaluate". Inputs are a request, the configuration with its policies and
// the inputs of one decision; outputs are a decision record, the claims of its receipt and the
// native reply. The package has no clock, no randomness, no I/O and no state: the same inputs
// give the same bytes.
//
// The protocol's own evaluator (packages below this one that implement call.Protocol) and the
// tool policies decide together. All of them are always evaluated, the strictest verdict wins,
// and every reason is kept. In a protocol whose evaluator decides alone if need be, policies of
// which none matches give no verdict (policy.Result.AdvisoryOnly). Every failure is a deny with a
// stable reason code: nothing fails open. Begin reading with Decide.
package admission

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// EvaluatorName is the name under which this package gives its own reasons.
const EvaluatorName = call.AdmissionEvaluatorName

// Reason codes of requests in any protocol.
const (
	CodeUnknownTenant    = "unknown_tenant"    // the admitter does not know the tenant
	CodeUnknownSource    = "unknown_source"    // the request has no authenticated publisher
	CodeUnknownProtocol  = "unknown_protocol"  // the subject names a protocol that has no admission
	CodeInternal         = "internal_error"    // the admitter failed on this request; its log says why
	CodeAuditUnavailable = "audit_unavailable" // request or decision could not be recorded durably
	CodeTooLarge         = "too_large"         // the request is too large for a copy of it to be kept
)

// DefaultApprovalLifetime is how long an approval workflow stays open unless a policy sets
// another lifetime.
const DefaultApprovalLifetime = 15 * time.Minute

// Request is an admission request as it arrived. Tenant and Source are the authenticated
// values, never what the body says. The caller must not change Header and Body before
// Outcome.Reply.
type Request struct {
	Tenant     string
	Source     string
	Gateway    string // the gateway that spoke for Source; "" for a direct connection
	Protocol   string
	Header     map[string][]string
	Body       []byte
	ReceivedAt time.Time
}

// Inputs are the external inputs of one decision. All of them are required unless their comment
// says otherwise; a missing one is deny internal_error.
type Inputs struct {
	Now         time.Time
	DecisionID  string // UUIDv7
	Salt        []byte // receipt.SaltSize fresh random bytes
	Nonce       string // fresh and random
	TenantKey   []byte // digest.Master.Tenant, for digests of what has no session
	Occurrence  int    // 0 if not known
	Durability  string // fsync replicated interval memory; may be empty
	KnownTenant bool   // the caller's account belongs to the tenant

	// SessionSecret returns the secret of a request's session, with which digests are made. If
	// ready is false, see Outcome.NeedsSessionSecret. Where SessionSecret is nil, Secret is the
	// secret; where Secret is nil too, digests are made with TenantKey.
	SessionSecret func(tenant, session string) (secret *digest.Session, ready bool)
	Secret        *digest.Session

	// PlainDigests makes the digests plain SHA-256 of their input, from which short secrets can
	// be guessed. It is for offline decisions only, where the reader of the digest has the
	// request.
	PlainDigests bool

	// Confirmations looks up accepted confirmations; nil means that there are none.
	Confirmations call.Confirmations

	// Mandates looks up AUMP mandates; with the zero Records every request that names a mandate
	// is denied.
	Mandates mandate.Records

	// Context is the request's deadline for the policies' conditions; nil for none.
	// See Outcome.DeadlineExceeded.
	Context context.Context

	// Inspect, unless nil, is given what the policies see of a call before they are evaluated. It
	// must not change it.
	Inspect func(policy.Input)

	// Approvals, Counters and Publishers are nil where none are configured.
	Approvals  approval.Index
	Counters   policy.Counters
	Publishers publisher.Registry
}

// Profile is how strictly a protocol that has a reference implementation is read.
type Profile = call.Profile

// The profiles; the zero Profile is ProfileHardened.
const (
	ProfileHardened     = call.ProfileHardened
	ProfileReferenceSDK = call.ProfileReferenceSDK
)

// Config is the configuration that decides. It is immutable. The nil Config denies
// everything.
type Config struct {
	Policies  *policy.Set
	PolicyErr error  // why there is no usable set; denies everything, whatever Policies holds
	Revision  uint64 // of the policies, as the store counts them

	// Strict and Profile are zero in the service; policy tables, `policy evaluate` and replays set
	// them. Strict, AAEP: a confirmation must name the call; under ProfileReferenceSDK, high-risk
	// invocations need one as well (AAEP-C-101). Profile, AAEP, AANA and AUMP: whether the
	// references' known holes are closed; the zero Profile closes them.
	Strict  bool
	Profile Profile

	// Observed are the tenants in mode observe: verdicts of their policies are recorded and not
	// enforced. What protocols, mandates, catalogues and approvals decide is enforced, and so is
	// every refusal of bad input and every failure.
	Observed map[string]bool
}

// observes reports whether the policies of a tenant are only observed.
func (c *Config) observes(tenant string) bool { return c != nil && c.Observed[tenant] }

// Outcome is a decision before it is sent. Before Reply the service may set
// Decision.ReceiptHash and call Outcome's methods; it must change nothing else.
type Outcome struct {
	Decision events.Decision
	Session  string // for subjects; "" if the request has none

	// DeadlineExceeded reports that Inputs.Context ended before the policies were evaluated. The verdict
	// is deny, but it must not be recorded: repeated, the decision can have another verdict.
	DeadlineExceeded bool

	// Claims are ready for receipt.Issue unless NoReceipt. An observational event is answered
	// allow without a receipt, because that answer is no permission to run anything; an unknown
	// tenant or source gets no receipt either.
	Claims    receipt.Claims
	NoReceipt bool

	// Malformed reports that the request was not valid for its protocol, or could not be
	// evaluated at all. ErrorCode and ErrorDescription are then for the micro error headers: a
	// three-digit code and a reason code with its JSON pointer.
	Malformed        bool
	ErrorCode        string
	ErrorDescription string

	// Consumption must be had before the decision is recorded.
	Consumption Consumption

	protocol    call.Protocol // nil: Reply gives the generic refusal
	request     Request
	call        call.Call
	ruling      call.Ruling
	explanation string // for the caller

	secret        *digest.Session // the session's secret
	secretMissing bool            // it was not at hand
}

// Package call holds the types that evaluators share: the request, the proposed call that a
// protocol reads from it, and an evaluator's opinion of the call. A protocol is an
// implementation of Protocol in a package of its own; package admission lists them. Begin
// reading with Protocol.
//
// Everything here is data. Implementations of the interfaces must be pure: no clock,
// randomness, goroutine or I/O.
package call

import (
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// AdmissionEvaluatorName is the name under which reasons are given that are no single protocol's
// and no policy's.
const AdmissionEvaluatorName = "admission"

// Request is an admission request as given to a protocol. It must not be changed.
type Request struct {
	Tenant, Source string // authenticated
	Header         map[string][]string
	Body           []byte
	Now            time.Time
	Limits         strictjson.Limits
	Confirmations  Confirmations // never nil
	Strict         bool          // see admission.Config
	Profile        Profile       // see admission.Config

	// Records are Countersign's own records about mandates.
	Records mandate.Records

	// Publishers are the declarations of the tenant's operator; nil if there are none.
	Publishers publisher.Registry

	// Digest is the digest of records for this tenant: keyed, or plain for an offline decision.
	// It is for values that must be distinguished without being shown. It may be nil.
	Digest func([]byte) string
}

// Profile is how strictly a protocol that has a reference implementation is read. The empty and
// every unknown profile is ProfileHardened.
type Profile string

// The profiles.
const (
	ProfileHardened     Profile = "hardened"      // without the reference's known holes
	ProfileReferenceSDK Profile = "reference-sdk" // as the reference decides; for comparison with it
)

// Call is one proposed call, as far as it could be read. Its maps belong to the request's
// document and must not be changed.
type Call struct {
	EventID       string // normalised, where the request has a valid one
	EventIDAsSent string // what a reply must echo
	EventType     string

	Session, Agent string
	ToolCallID     string // empty unless the call has a tool: no other verdict may pass for one on a call
	Tool, Action   string
	ResourceKind   string
	ResourceScope  string
	Resource       any            // string, map[string]any or nil
	Risk           map[string]any // the known risk, for policies and evaluators
	Args           map[string]any // nil if there are none
	ArgsCanonical  []byte         // RFC 8785 form of Args; nil if there are none
	ArgsClaims     []string       // members of Args that only say something about the call
	Event          map[string]any // the document, without the publisher's claims in its own favour
	Traceparent    string         // W3C traceparent

	Dir string // the directory in which the agent works, as the request states it; "" if it does not

	// ApprovalScope is what the request limits an approval to besides the call and its agent, such as the
	// caller for whom a gate asks; "" if it states none.
	ApprovalScope string

	FromAgent, ToAgent string // of a handoff: the proposing agent and the target
	RawArguments       bool   // Args holds only the text of arguments that are not JSON

	// Claim is what the request states about the tool, for the tool catalogue; Name and
	// Evaluated are set by package admission. It may be empty without Request.Publishers.
	Claim publisher.Claim

	// NamedWorkflow is the approval workflow that the request names in its body, and
	// PreviousCall the tool call ID of the attempt that it repeats; "" for none.
	NamedWorkflow, PreviousCall string

	// CanonicalTool is the tool catalogue's name for Tool, "" if it has none; policies see it
	// as the tool. Catalogue holds the catalogue's other facts, nil without a lookup (package
	// publisher, Tool.Facts).
	CanonicalTool string
	Catalogue     map[string]any

	// Mandate is the mandate that the call is evaluated under, nil if there is none. Mandated
	// is the RFC 8785 form of the action evaluated under it where that is not Args.
	Mandate  *events.MandateRef
	Mandated []byte

	// Reservation is what the call reserves of its mandate's budget once it is allowed; nil for
	// nothing.
	Reservation *mandate.Reservation

	// Confirmed is the ID of the confirmation that the protocol's opinion rests on, "" if it
	// rests on none, and ConfirmedInvocation the invocation that it is for. Unconfirmed is the
	// invocation that needs a confirmation and has none, nil if there is none.
	Confirmed           string
	ConfirmedInvocation *Invocation
	Unconfirmed         *Invocation

	// ProtocolState is private to the protocol: Read sets it for Reply. It is nil if Read
	// panicked.
	ProtocolState any
}

// Opinion is the result of one evaluator.
type Opinion struct {
	Verdict      events.Verdict
	Reasons      []events.Reason
	DecidingCode string // code of the reason that made the verdict this strict; "" for a bare allow

	// Unapprovable is the strictest verdict in the opinion that no reviewer's approval lifts,
	// "" if approvals lift all of it. AddReason records every defer and deny; an evaluator sets
	// it itself for an ask of this kind.
	Unapprovable events.Verdict
	// AskCodes are the codes of the reasons to ask, each once: an approval covers these and no
	// others.
	AskCodes []string

	// NotAfter, unless zero, is the end of validity of what the opinion rests on.
	NotAfter time.Time
	// ApprovalWindow, unless zero, is how long a requested approval stays open.
	ApprovalWindow time.Duration

	// Malformed reports that the request is not valid for its protocol: there is no call for
	// further evaluators. The verdict is deny.
	Malformed bool
	Unread    bool // the request is not readable JSON: paths of reasons quote it

	// Observational reports that the request only reports and proposes nothing. It is answered
	// allow at once, no policy is evaluated, and the answer permits nothing.
	Observational bool
}

// Protocol reads the requests of one admission protocol and writes its replies.
type Protocol interface {
	// Read decodes a request, evaluates it by the protocol's own rules, and returns the
	// proposed call. With a malformed opinion the call holds what could be read, for the
	// record.
	Read(Request) (Call, Opinion)

	// HasNativeEvaluator reports whether the protocol's specification defines an evaluator.
	// Tool policies can then only make its verdict stricter, and where none matches the call
	// its verdict stands. A tenant without any policy is denied all the same. Such a protocol
	// gives a reason for every verdict.
	HasNativeEvaluator() bool

	// NativeVerdict is the protocol's word for a verdict, "" if it has none.
	NativeVerdict(events.Verdict) string

	// Reply renders the native reply to the call. reason is text for the caller; the record is
	// final.
	Reply(c Call, d events.Decision, reason string) ([]byte, error)
}

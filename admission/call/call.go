// Package call is the common language of the evaluators: what a request gives
// them, the proposed call that a protocol reads out of it, and the opinion that
// an evaluator has of it. A further protocol is a further implementation of
// Protocol in a package of its own.
//
// Everything here is data; the interfaces must be pure: no clock, randomness,
// goroutine or I/O behind them.
package call

import (
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Request is an admission request as a protocol gets it. It must not be
// changed.
type Request struct {
	Tenant, Source string // authenticated
	Header         map[string][]string
	Body           []byte
	Now            time.Time
	Limits         strictjson.Limits
	Confirmations  Confirmations // never nil
	Strict         bool          // see admission.Snapshot
	Profile        Profile       // see admission.Snapshot

	// Records is what Countersign itself knows about mandates.
	Records mandate.Records

	// Publishers is what the tenant's operator declares; nil if nobody declares
	// anything.
	Publishers publisher.Registry

	// Digest is the digest of records for this tenant: keyed, or plain where the
	// decision is an offline one. It is for what must be told apart and not be
	// shown. It may be nil.
	Digest func([]byte) string
}

// Profile says how strictly a protocol that has a reference of its own is read.
// The empty and every unknown profile is ProfileHardened.
type Profile string

// The profiles.
const (
	ProfileHardened     Profile = "hardened"      // without the holes that the reference is known to have
	ProfileReferenceSDK Profile = "reference-sdk" // as the reference decides; for comparison with it
)

// Call is one proposed call, as far as it could be read. Its maps belong to the
// request's document and must not be changed.
type Call struct {
	EventID       string // normalised, where the request has a valid one
	EventIDAsSent string // what a reply must echo
	EventType     string

	Session, Agent string
	ToolCallID     string // empty unless the call has a tool: no verdict on anything else may pass for one on a call
	Tool, Action   string
	ResourceKind   string
	ResourceScope  string
	Resource       any            // string, map[string]any or nil
	Risk           map[string]any // what policies and evaluators know of the risk
	Args           map[string]any // nil if there are none
	ArgsCanonical  []byte         // RFC 8785 form of Args; nil if there are none
	Event          map[string]any // the document, less what a publisher says in its own favour
	Trace          string         // W3C traceparent

	FromAgent, ToAgent string // of a handoff: who proposes, and who shall take over
	RawArguments       bool   // Args only holds the text of arguments that are not JSON

	// CanonicalTool is the tool catalogue's name for Tool, "" if it has none: what
	// policies see as the tool. Catalogue is what it knows of the tool besides, nil
	// if nobody looked (package publisher, Tool.Facts).
	CanonicalTool string
	Catalogue     map[string]any

	// Mandate is the mandate that the call is judged under, nil if there is none.
	// Mandated is the RFC 8785 form of the action that was judged under it where
	// that is not Args.
	Mandate  *events.MandateRef
	Mandated []byte

	// Confirmed is the ID of the confirmation that the protocol's opinion rests on,
	// "" if it rests on none. Unconfirmed is the invocation that would need one and
	// has none, nil if there is no such.
	Confirmed   string
	Unconfirmed *Invocation

	// ProtocolState is what the protocol's Read leaves for its Reply; nobody else looks at
	// it. It is nil if Read did not come back.
	ProtocolState any
}

// Opinion is what one evaluator says.
type Opinion struct {
	Verdict      events.Verdict
	Reasons      []events.Reason
	DecidingCode string // the code of the reason that made the verdict as strict as it is; "" for a bare allow

	// Unapprovable is the strictest verdict in the opinion that no reviewer's
	// approval lifts, "" if approvals lift all of it. Say notes every defer and deny;
	// an evaluator that knows an ask to be of this kind sets it itself.
	Unapprovable events.Verdict
	// AskCodes are the codes of the reasons that ask, each once: an approval answers
	// these and no others.
	AskCodes []string

	// NotAfter, unless it is zero, is when that ends on which the opinion rests.
	NotAfter time.Time
	// ApprovalWindow, unless it is zero, is how long an approval that the opinion asks for
	// stays open.
	ApprovalWindow time.Duration

	// Malformed says that the request is not valid for its protocol: there is no
	// call that a further evaluator could judge. The verdict is deny.
	Malformed bool
	Unread    bool // the request is no JSON that can be read: paths of reasons quote it

	// Observational says that the request reports something and proposes
	// nothing. It is answered allow at once, no policy is asked, and the answer
	// authorises nothing.
	Observational bool
}

// Protocol reads the requests of one admission protocol and writes its replies.
type Protocol interface {
	// Read decodes a request, judges it by the protocol's own rules, and gives
	// the proposed call. With a malformed opinion the call holds what could be
	// read nonetheless, for the record.
	Read(Request) (Call, Opinion)

	// HasNativeEvaluator says that the protocol's specification has an evaluator of its own,
	// which is the policy: tool policies can only make its verdict stricter, and
	// where none matches the call its verdict stands. A tenant without any policy
	// is denied all the same. Such a protocol gives a reason for every verdict.
	HasNativeEvaluator() bool

	// NativeVerdict is the protocol's own word for a verdict, "" if it has none.
	NativeVerdict(events.Verdict) string

	// Reply renders the native reply to the call. reason is text for the caller;
	// the record is final.
	Reply(c Call, d events.Decision, reason string) ([]byte, error)
}

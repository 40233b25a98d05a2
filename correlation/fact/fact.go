// Package fact turns messages of the log into facts: one message in the engine's own terms.
// A Decoder needs no state, so several may decode in parallel and ahead of the engine. The
// package also has the keys, sums and hashes by which the engine finds publishers, sessions,
// calls and events. Begin reading with Decoder.Decode and Fact.
package fact

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Kind is the kind of a message, from a call's point of view.
type Kind int

const (
	KindOther          Kind = iota // none of the others; only its event id counts
	KindRequest                    // the admitter's copy of a request
	KindDecision                   // a verdict
	KindPre                        // the producer announces the call
	KindPost                       // the producer reports its end
	KindStopped                    // the producer says that it will not run (ToolUseBlocked, a fail mode that denied)
	KindError                      // the producer reports an error that ends the call
	KindFailOpen                   // the publisher's fail mode let the call pass
	KindApproval                   // the producer says that the call was approved
	KindAdmissionReply             // a recorded reply to an admission request
	KindSessionEnd                 // the session ends
	KindQuestionReply              // a user's reply to a question
	KindOtherRequest               // the admitter's copy of a request that is not about a tool call
	KindCount                      // the number of kinds
)

// Effect says whether a completed call had effects.
type Effect int

const (
	NoEffect    Effect = iota // denied, blocked, cancelled, or timed out before it began
	MaybeEffect               // a word that also stands for "did not run"
	HadEffect
)

// Sum is a shortened SHA-256: an id of fixed size.
type Sum [16]byte

// IsZero reports whether s is the zero value.
func (s *Sum) IsZero() bool {
	return binary.LittleEndian.Uint64(s[:8])|binary.LittleEndian.Uint64(s[8:]) == 0
}

// SumOf hashes a list of texts. Different lists have different sums.
func SumOf(parts ...string) Sum {
	var room [512]byte
	text := room[:0]
	for _, p := range parts {
		text = binary.BigEndian.AppendUint64(text, uint64(len(p)))
		text = append(text, p...)
	}
	whole := sha256.Sum256(text)
	return Sum(whole[:16])
}

// SumOfBytes is SumOf of one text.
func SumOfBytes(part []byte) Sum {
	var room [2048]byte
	text := binary.BigEndian.AppendUint64(room[:0], uint64(len(part)))
	whole := sha256.Sum256(append(text, part...))
	return Sum(whole[:16])
}

// SourceSession identifies a session of a publisher. Its fields are subject tokens, so that a
// session from a body equals the same session from a subject.
type SourceSession struct{ Tenant, Source, Session string }

// TokenKey is a table key made of a token that a publisher chose.
type TokenKey struct {
	Tenant, Source string
	Token          Sum
}

// Publisher is the publisher of the session.
func (k SourceSession) Publisher() PublisherKey { return PublisherKey{k.Tenant, k.Source} }

// Origin is the session of a message: Key as subject tokens, the other fields as shown in
// records.
type Origin struct {
	Key                     SourceSession
	Tenant, Source, Session string
}

// OriginOf is the origin with these names.
func OriginOf(tenant, source, session string) Origin {
	return Origin{
		Key:    SourceSession{subject.Escape(tenant), subject.Escape(source), subject.Escape(session)},
		Tenant: BoundID(tenant), Source: BoundID(source), Session: BoundID(session),
	}
}

// BoundID returns an id, or its hashed form if it is longer than MaxIDBytes.
func BoundID(s string) string {
	if len(s) <= MaxIDBytes {
		return s
	}
	return subject.Escape(s)
}

// CallKey identifies the occurrences of a call within its session. A call without an id is
// identified by its tool.
type CallKey struct{ ID, Tool string }

// CallKeyOf is the key of a call with an id; without one, of its tool.
func CallKeyOf(callID, tool string) CallKey {
	if callID == "" {
		return CallKey{Tool: subject.Escape(tool)}
	}
	return CallKey{ID: subject.Escape(callID)}
}

// Fact is one message in the engine's terms.
type Fact struct {
	Kind     Kind
	Seq      uint64
	At       time.Time // broker time
	Protocol string
	Origin
	EventID       string
	Agent         string
	CallID        string // as shown
	Tool          string // as shown
	CallKey       CallKey
	Found         any     // the engine's lookup result for CallKey; SetCallKey clears it
	FirstCallSum  Sum     // CallSum of the first occurrence; zero if the decoder did not compute it
	CanonicalTool string  // the tool's name in the action-governance profile
	RetriedKey    CallKey // of metadata.retry.previous_tool_call_id; zero if there is none
	Args          Arguments

	ContentSum  Sum // of the message's bytes
	CachedIDSum Sum // of its event id, or its decision id; copies of the message have the same
	CoreSum     Sum // of the event without verdict, approval and annotations (AH-C-050)
	TargetSum   Sum // what its call acts on; see targetOf in package agenthook
	FrameSum    Sum // of the core without arguments, redaction and phase: a request and its event have the same

	DecisionID        string           // of a decision, or of the request that it answers
	CachedReceiptKey  Sum              // the key of its decision, see ReceiptKey; zero until OwnReceiptKey computes it
	ReceiptDecisionID string           // the decision whose receipt a completion names
	DecisionRef       string           // the decision that the event's approval refers to (decision_ref)
	NamedWorkflow     string           // the approval workflow that a request names
	Decision          *RecordedVerdict // set if Kind is KindDecision
	VerdictClaim      VerdictClaim     // the verdict that the event claims
	Approval          *Approval        // what the event says of an approval; nil if nothing
	ExpectedDuration  time.Duration
	RelatedEventIDs   []string // further event ids of the call, such as the paused event's

	Effect            Effect
	Outcome           string
	StartedAt         time.Time
	HasMutationReason bool   // a mutation_reason is recorded
	LacksCallID       bool   // a Post event that only names the call that it retries (H-07)
	Invalid           bool   // it breaks its protocol, so it changes no state
	RefusedNumber     *int64 // its number in its session; nil if it has none
	RefusedSession    string // the session that number is of, where it is not the key's; "" else
	PreCommit         bool   // it claims to come before the execution
	NeedsHuman        bool   // a person must approve the call (risk.requires_human_approval)

	LineageRefs   LineageRefs // what it says of its session's parent
	ProducerTimes ProducerTimes

	Event          any                  // the protocol's event; nil for requests and decisions
	Confirmation   *Confirmation        // the user's answer that an invocation rests on; nil if there is none
	MandateRef     *events.MandateRef   // of a decision
	DecisionExtras *DecisionExtras      // nil if not needed
	NamesPolicies  bool                 // the decision names the policies that made it
	RequestFlags   RequestFlags         // of a request
	EventFindings  []*catalogue.Finding // the checks that it breaks by itself
}

// HasTool reports whether the fact names a call by id or tool.
func (f *Fact) HasTool() bool {
	return f.CallKey != CallKey{Tool: subject.NoSession} && f.CallKey != CallKey{}
}

// SetCallKey sets CallKey, and clears what depended on the old key.
func (f *Fact) SetCallKey(k CallKey) {
	f.CallKey, f.FirstCallSum, f.Found = k, Sum{}, nil
}

// RecordedVerdict is a verdict of a recorded decision.
type RecordedVerdict struct {
	ID          string
	Seq         uint64
	At          time.Time
	Verdict     events.Verdict
	Expires     time.Time
	HasReceipt  bool
	ArgsDigest  string    // of the arguments; "" if it has none
	Approval    *Approval // nil if it names none
	EventID     string
	ApprovalRef string // another name of its approval; only in recordings
}

// VerdictClaim is a verdict that an event claims.
type VerdictClaim struct {
	Verdict   events.Verdict // "" if it says nothing
	Seq       uint64
	DecidedAt time.Time
}

// Approval is what an event or a decision says about an approval workflow.
type Approval struct {
	Status, Workflow, Action string
	ResumePolicy             string // how the call is to be resumed
	DecidedAt, ExpiresAt     time.Time
}

// ValueOrZero is the approval, or the zero value of a nil pointer.
func (a *Approval) ValueOrZero() Approval {
	if a == nil {
		return Approval{}
	}
	return *a
}

// HasStatus reports whether a is not nil and has the status.
func (a *Approval) HasStatus(status string) bool { return a != nil && a.Status == status }

// PointerOrNil returns a copy of a, nil if a is zero.
func (a Approval) PointerOrNil() *Approval {
	if a == (Approval{}) {
		return nil
	}
	return &a
}

// ParseClaimedVerdict parses a native verdict. An unknown word is deny.
func ParseClaimedVerdict(word string) events.Verdict {
	v := events.Verdict(strings.ToLower(word))
	if word == "" || v.Valid() {
		return v
	}
	return events.Deny
}

// SetCall sets the call that the fact is about.
func (f *Fact) SetCall(callID, tool string) {
	f.CallID, f.Tool = BoundID(callID), BoundID(tool)
	f.SetCallKey(CallKeyOf(callID, tool))
}

// Members in which a request and its event may differ (AH-C-050), and those that a frame
// leaves out as well.
var (
	CoreOmits          = MemberNames{"annotations": true}
	CoreMetadataOmits  = MemberNames{"admission_verdict": true, "approval": true}
	FrameOmits         = MemberNames{"annotations": true, "tool_input": true, "evidence_phase": true}
	FrameMetadataOmits = MemberNames{"admission_verdict": true, "approval": true, "redaction": true}
)

// MemberNames is a set of member names.
type MemberNames map[string]bool

// ProducerTimes are times and counts that a producer claims of a call.
type ProducerTimes struct {
	HappenedAt  time.Time // by the producer's clock; zero if unknown
	CompletedAt time.Time
	DurationMS  int64
	HasDuration bool // a DurationMS of 0 is a claim, too
	Attempt     int64
}

// SetDuration sets the duration to a producer's number, which may be missing or negative.
func (t *ProducerTimes) SetDuration(ms *int64) {
	t.DurationMS, t.HasDuration = NonNegative(ms), ms != nil && *ms >= 0
}

// ClaimedEnd is when a completion says that the execution ended, or else that it was published
// itself; the time of its report if it claims no time before that.
func (f *Fact) ClaimedEnd() time.Time {
	for _, claimed := range [...]time.Time{f.ProducerTimes.CompletedAt, f.ProducerTimes.HappenedAt} {
		if !claimed.IsZero() && !claimed.After(f.At) {
			return claimed
		}
	}
	return f.At
}

// NonNegative is a producer's number; 0 if it is missing or negative.
func NonNegative(n *int64) int64 {
	if n == nil || *n < 0 {
		return 0
	}
	return *n
}

// PublisherKey identifies a publisher of a tenant.
type PublisherKey struct{ Tenant, Source string }

// TableKey is k in the terms of package tables.
func (k PublisherKey) TableKey() tables.PublisherKey {
	return tables.PublisherKey{Tenant: k.Tenant, Source: k.Source}
}

// TenantTableKey is the owner of an entry that is one publisher's: it counts as its tenant's, so
// that of each tenant the least recently active publisher is forgotten first.
func (k PublisherKey) TenantTableKey() tables.PublisherKey {
	return tables.PublisherKey{Tenant: k.Tenant}
}

// IDSum is the key of the fact's id in the history. The decoder computes it.
func (f *Fact) IDSum() Sum {
	if f.CachedIDSum == (Sum{}) {
		if f.Kind == KindDecision {
			f.CachedIDSum = SumOf("decision", f.DecisionID)
		} else {
			f.CachedIDSum = SumOf("event", f.EventID)
		}
	}
	return f.CachedIDSum
}

// EndsCall reports whether an update says how a call ended, or why it needed no verdict.
func (f *Fact) EndsCall() bool {
	return f.Kind == KindStopped || f.Kind == KindError || f.Kind == KindFailOpen
}

// ReceiptKey identifies a decision of a tenant, and its receipt.
func ReceiptKey(tenant, decisionID string) Sum { return SumOf("receipt", tenant, decisionID) }

// OwnReceiptKey is the ReceiptKey of the fact's own decision.
func (f *Fact) OwnReceiptKey() Sum {
	if f.CachedReceiptKey == (Sum{}) {
		f.CachedReceiptKey = ReceiptKey(f.Key.Tenant, f.DecisionID)
	}
	return f.CachedReceiptKey
}

// CallSum is the sum that a call_id is made of.
func CallSum(k SourceSession, s CallKey, occurrence int) Sum {
	return SumOf("call", k.Tenant, k.Source, k.Session, s.ID, s.Tool, strconv.Itoa(occurrence))
}

// SingleEventFinding is a finding with one event as its proof.
func SingleEventFinding(check, what string, f *Fact) *catalogue.Finding {
	found := &catalogue.Finding{Check: check, Text: what, Seqs: []uint64{f.Seq}, Call: f.CallID}
	if f.EventID != "" {
		found.Events = []string{f.EventID}
	}
	return found
}

// ConfirmingMessage is a question to the user, or its answer, on the log.
type ConfirmingMessage struct {
	ID  string
	Seq uint64
	At  time.Time // the broker's
}

// Confirmation is the question and the answer that an invocation rests on.
type Confirmation struct {
	Asked, Accepted ConfirmingMessage
	Explicit        bool // the question names the call
}

// MaxIDBytes bounds an id in a record. A longer id appears as "~h" and its SHA-256.
const MaxIDBytes = 1024

// MaxExpectedDuration bounds the announced duration of a call.
const MaxExpectedDuration = 48 * time.Hour

// MaxOvertaken is how long after the end of a session an event may be stored that was, by its
// publisher's word, emitted before it.
const MaxOvertaken = time.Minute

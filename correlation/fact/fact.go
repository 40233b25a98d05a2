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
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

// Kind is what a message means for a call.
type Kind int

const (
	KindOther          Kind = iota // nothing; only its event id counts
	KindRequest                    // the admitter's copy of a request
	KindDecision                   // a verdict
	KindPre                        // the producer announces the call
	KindPost                       // the producer reports its end
	KindStopped                    // the producer says that it will not run (ToolUseBlocked, a fail mode that denied)
	KindError                      // the producer reports an error that ends the call
	KindFailOpen                   // the publisher's fail mode let the call pass
	KindApproval                   // the producer says that the call was approved
	KindAdmissionReply             // a recorded reply to an admission request
	KindSessionEnd                 // nothing of this session comes after it
	KindQuestionReply              // a user's reply to a question
	KindOtherRequest               // the admitter's copy of a request about something that is no tool call
	KindCount                      // how many there are
)

// Effect is whether a completion means that the call had effects.
type Effect int

const (
	NoEffect    Effect = iota // denied, blocked, cancelled, timed out before it began
	MaybeEffect               // a word that also stands for "did not run"
	HadEffect
)

// Sum is a shortened SHA-256: an id of bounded size for texts of any size.
type Sum [16]byte

// IsZero tells that it is no sum.
func (s *Sum) IsZero() bool {
	return binary.LittleEndian.Uint64(s[:8])|binary.LittleEndian.Uint64(s[8:]) == 0
}

// SumOf hashes parts so that no two lists of parts are hashed alike.
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

// SumOfBytes is sumOf of one part.
func SumOfBytes(part []byte) Sum {
	var room [2048]byte
	text := binary.BigEndian.AppendUint64(room[:0], uint64(len(part)))
	whole := sha256.Sum256(append(text, part...))
	return Sum(whole[:16])
}

// SessionKey is a session's identity: subject tokens, so that what comes from a
// body and what comes from a subject are the same text.
type SessionKey struct{ Tenant, Source, Session string }

func (k SessionKey) Publisher() SourceKey { return SourceKey{k.Tenant, k.Source} }

// Origin is the sender of a message: keys to work with and names to show.
type Origin struct {
	Key                     SessionKey
	Tenant, Source, Session string
}

func OriginOf(tenant, source, session string) Origin {
	return Origin{
		Key:    SessionKey{subject.Escape(tenant), subject.Escape(source), subject.Escape(session)},
		Tenant: BoundID(tenant), Source: BoundID(source), Session: BoundID(session),
	}
}

// BoundID bounds an id that a producer chose.
func BoundID(s string) string {
	if len(s) <= MaxIDBytes {
		return s
	}
	return subject.Escape(s)
}

// CallKey is a call's identity within its session but for the occurrence. Calls
// without an id are told apart by tool.
type CallKey struct{ Id, Tool string }

func CallKeyOf(callID, tool string) CallKey {
	if callID == "" {
		return CallKey{Tool: subject.Escape(tool)}
	}
	return CallKey{Id: subject.Escape(callID)}
}

// Fact is one message in the terms of the engine.
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
	cachedKeyHash uint32       // see hashOfSlot
	Found         any          // what the engine looked up by callKey; setCallKey clears it
	CachedHashes  OriginHashes // of its origin
	FirstCallSum  Sum          // the sum of the first call of its group; zero if its reader has not made it
	CanonicalTool string       // the tool's name in the action-governance profile
	RetriedKey    CallKey      // of metadata.retry.previous_tool_call_id; zero if there is none
	Args          Arguments

	ContentSum  Sum // of the message's bytes
	CachedIDSum Sum // of what a copy of it has as well: its event id, or its decision's
	CoreSum     Sum // of the event without verdict, approval and annotations (AH-C-050)
	TargetSum   Sum // what its call is done to: see targetOf
	FrameSum    Sum // of core without arguments, redaction and phase: what a request and its evidence form share

	DecisionID        string           // of a decision, or of the request it answers
	CachedReceiptKey  Sum              // what a decision is known by: see decidingSum; zero until it is asked for
	ReceiptDecisionID string           // the decision whose receipt a completion says that it ran on
	DecisionRef       string           // the decision that the event's approval refers to (decision_ref)
	NamedWorkflow     string           // of a request: the approval workflow that it names
	Decision          *RecordedVerdict // kindDecision; else nil
	VerdictClaim      VerdictClaim     // what the event says the verdict was
	Approval          *Approval        // what the event says about an approval; nil if that is nothing
	ExpectedDuration  time.Duration
	RelatedEventIDs   []string // other ids that lead to the call: the paused event's id

	Effect            Effect
	Outcome           string
	StartedAt         time.Time
	HasMutationReason bool   // a mutation_reason is recorded
	LacksCallID       bool   // a Post event that has no id of its own, only that of the call it tries again (H-07)
	Invalid           bool   // it does not follow its protocol, so it changes no state
	RefusedNumber     *int64 // of a refused event in its session; nil if it has none
	RefusedSession    string // the session that number is of, where it is not the key's; "" else
	PreCommit         bool   // it claims to come before what it announces
	NeedsHuman        bool   // a person has to approve what it announces (risk.requires_human_approval)

	LineageRefs   LineageRefs // where it says that it belongs
	ProducerTimes ProducerTimes

	Event          any                  // what the protocol's own checks make of it; nil for requests and decisions
	Confirmation   *Confirmation        // the question and answer that an invocation rests on; nil if that is nothing
	MandateRef     *events.MandateRef   // of a decision
	DecisionExtras *DecisionExtras      // what else it says; nil if that is nothing
	NamesPolicies  bool                 // it names the policies that it was made by
	RequestFlags   RequestFlags         // of a request
	EventFindings  []*catalogue.Finding // checks that it fails by itself
}

func (f *Fact) HasTool() bool {
	return f.CallKey != CallKey{Tool: subject.NoSession} && f.CallKey != CallKey{}
}

func (f *Fact) SetCallKey(k CallKey) {
	f.CallKey, f.cachedKeyHash, f.FirstCallSum = k, k.Hash(), Sum{}
	f.Found = nil
}

// CallKeyHash is the hash of callKey; setCallKey has made it.
func (f *Fact) CallKeyHash() uint32 {
	if f.cachedKeyHash == 0 {
		f.cachedKeyHash = f.CallKey.Hash()
	}
	return f.cachedKeyHash
}

// RecordedVerdict is one recorded verdict.
type RecordedVerdict struct {
	Id          string
	Seq         uint64
	At          time.Time
	Verdict     events.Verdict
	Expires     time.Time
	HasReceipt  bool
	ArgsDigest  string    // of the arguments; "" if it has none
	Approval    *Approval // nil if it says nothing of one
	EventID     string
	ApprovalRef string // how its approval is referred to, if that is not by the decision's id; only in recordings
}

// VerdictClaim is a verdict that an event says it had.
type VerdictClaim struct {
	Verdict   events.Verdict // "" if it says nothing
	Seq       uint64
	DecidedAt time.Time
}

// Approval is what an event or a decision says about an approval workflow.
type Approval struct {
	Status, Workflow, Action string
	ResumePolicy             string // how the call is to come back
	DecidedAt, ExpiresAt     time.Time
}

// ValueOrZero is what is known of it, which may be nothing.
func (a *Approval) ValueOrZero() Approval {
	if a == nil {
		return Approval{}
	}
	return *a
}

// HasStatus reports whether it has a status.
func (a *Approval) HasStatus(status string) bool { return a != nil && a.Status == status }

// PointerOrNil is where a is kept, nil if it says nothing.
func (a Approval) PointerOrNil() *Approval {
	if a == (Approval{}) {
		return nil
	}
	return &a
}

// ParseClaimedVerdict reads a native verdict. Unknown words deny.
func ParseClaimedVerdict(word string) events.Verdict {
	v := events.Verdict(strings.ToLower(word))
	if word == "" || v.Valid() {
		return v
	}
	return events.Deny
}

// SetCall names the call that a fact is about.
func (f *Fact) SetCall(callID, tool string) {
	f.CallID, f.Tool = BoundID(callID), BoundID(tool)
	f.SetCallKey(CallKeyOf(callID, tool))
}

// What a request and the evidence forms of its event may differ in (AH-C-050),
// and what a frame leaves out beside it.
var (
	CoreOmits          = strictjson.NamesOf(map[string]bool{"annotations": true})
	CoreMetadataOmits  = strictjson.NamesOf(map[string]bool{"admission_verdict": true, "approval": true})
	FrameOmits         = strictjson.NamesOf(map[string]bool{"annotations": true, "tool_input": true, "evidence_phase": true})
	FrameMetadataOmits = strictjson.NamesOf(map[string]bool{"admission_verdict": true, "approval": true, "redaction": true})
)

// MemberNames are names of members.
type MemberNames = strictjson.Names[bool]

// ProducerTimes is what a producer says of a call's time and place in a chain.
type ProducerTimes struct {
	HappenedAt  time.Time // when it happened, by the producer's own clock; zero if that is not known
	CompletedAt time.Time
	DurationMS  int64
	Attempt     int64
}

// NonNegative is a producer's number, 0 if it is none that means something here.
func NonNegative(n *int64) int64 {
	if n == nil || *n < 0 {
		return 0
	}
	return *n
}

// SourceKey is one publisher of one tenant.
type SourceKey struct{ Tenant, Source string }

// Holder is k as the tables know it.
func (k SourceKey) Holder() tables.Holder { return tables.Holder{Tenant: k.Tenant, Source: k.Source} }

// IdSum is the key of the fact's id in the history. The decoder has computed it.
func (f *Fact) IdSum() Sum {
	if f.CachedIDSum == (Sum{}) {
		if f.Kind == KindDecision {
			f.CachedIDSum = SumOf("decision", f.DecisionID)
		} else {
			f.CachedIDSum = SumOf("event", f.EventID)
		}
	}
	return f.CachedIDSum
}

// EndsCall reports whether a remark says how a call ended or why it needed no verdict.
func (f *Fact) EndsCall() bool {
	return f.Kind == KindStopped || f.Kind == KindError || f.Kind == KindFailOpen
}

func ReceiptKey(tenant, decisionID string) Sum { return SumOf("receipt", tenant, decisionID) }

// OwnReceiptKey is the receiptKey of the fact's own decision.
func (f *Fact) OwnReceiptKey() Sum {
	if f.CachedReceiptKey == (Sum{}) {
		f.CachedReceiptKey = ReceiptKey(f.Key.Tenant, f.DecisionID)
	}
	return f.CachedReceiptKey
}

func CallSum(k SessionKey, s CallKey, occurrence int) Sum {
	return SumOf("call", k.Tenant, k.Source, k.Session, s.Id, s.Tool, strconv.Itoa(occurrence))
}

// SingleEventFinding is a finding that one event proves.
func SingleEventFinding(check, what string, f *Fact) *catalogue.Finding {
	b := &catalogue.Finding{Check: check, Text: what, Seqs: []uint64{f.Seq}, Call: f.CallID}
	if f.EventID != "" {
		b.Events = []string{f.EventID}
	}
	return b
}

// ConfirmingMessage is where a question or its answer is on the log.
type ConfirmingMessage struct {
	Id  string
	Seq uint64
	At  time.Time // the broker's
}

// Confirmation is the user's question that an invocation rests on, and its
// answer.
type Confirmation struct {
	Asked, Accepted ConfirmingMessage
	Explicit        bool // the question names the call
}

// MaxIDBytes bounds ids: bytes of an id in a record; longer ids appear as "~h" and their SHA-256.
const MaxIDBytes = 1024

// MaxExpectedDuration is the longest announced duration that is believed.
const MaxExpectedDuration = 48 * time.Hour

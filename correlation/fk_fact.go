package correlation

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

// factKind is what a message means for a call.
type factKind int

const (
	kindOther          factKind = iota // nothing; only its event id counts
	kindRequest                        // the admitter's copy of a request
	kindDecision                       // a verdict
	kindPre                            // the producer announces the call
	kindPost                           // the producer reports its end
	kindStopped                        // the producer says that it will not run (ToolUseBlocked, a fail mode that denied)
	kindError                          // the producer reports an error that ends the call
	kindFailOpen                       // the publisher's fail mode let the call pass
	kindApproval                       // the producer says that the call was approved
	kindAdmissionReply                 // a recorded reply to an admission request
	kindSessionEnd                     // nothing of this session comes after it
	kindQuestionReply                  // a user's reply to a question
	kindOtherRequest                   // the admitter's copy of a request about something that is no tool call
	kindCount                          // how many there are
)

// effect is whether a completion means that the call had effects.
type effect int

const (
	noEffect    effect = iota // denied, blocked, cancelled, timed out before it began
	maybeEffect               // a word that also stands for "did not run"
	hadEffect
)

// sum is a shortened SHA-256: an id of bounded size for texts of any size.
type sum [16]byte

// isZero tells that it is no sum.
func (s *sum) isZero() bool {
	return binary.LittleEndian.Uint64(s[:8])|binary.LittleEndian.Uint64(s[8:]) == 0
}

// sumOf hashes parts so that no two lists of parts are hashed alike.
func sumOf(parts ...string) sum {
	var room [512]byte
	text := room[:0]
	for _, p := range parts {
		text = binary.BigEndian.AppendUint64(text, uint64(len(p)))
		text = append(text, p...)
	}
	whole := sha256.Sum256(text)
	return sum(whole[:16])
}

// sumOfBytes is sumOf of one part.
func sumOfBytes(part []byte) sum {
	var room [2048]byte
	text := binary.BigEndian.AppendUint64(room[:0], uint64(len(part)))
	whole := sha256.Sum256(append(text, part...))
	return sum(whole[:16])
}

// sessionKey is a session's identity: subject tokens, so that what comes from a
// body and what comes from a subject are the same text.
type sessionKey struct{ tenant, source, session string }

func (k sessionKey) publisher() sourceKey { return sourceKey{k.tenant, k.source} }

// origin is who a message is from: keys to work with and names to show.
type origin struct {
	key                     sessionKey
	tenant, source, session string
}

func originOf(tenant, source, session string) origin {
	return origin{
		key:    sessionKey{subject.Escape(tenant), subject.Escape(source), subject.Escape(session)},
		tenant: boundID(tenant), source: boundID(source), session: boundID(session),
	}
}

// boundID bounds an id that a producer chose.
func boundID(s string) string {
	if len(s) <= maxIDBytes {
		return s
	}
	return subject.Escape(s)
}

// callKey is a call's identity within its session but for the occurrence. Calls
// without an id are told apart by tool.
type callKey struct{ id, tool string }

func callKeyOf(callID, tool string) callKey {
	if callID == "" {
		return callKey{tool: subject.Escape(tool)}
	}
	return callKey{id: subject.Escape(callID)}
}

// fact is one message in the terms of the engine.
type fact struct {
	kind     factKind
	seq      uint64
	at       time.Time // broker time
	protocol string
	origin
	eventID       string
	agent         string
	callID        string // as shown
	tool          string // as shown
	callKey       callKey
	cachedKeyHash uint32       // see hashOfSlot
	found         any          // what the engine looked up by callKey; setCallKey clears it
	cachedHashes  originHashes // of whose it is
	firstCallSum  sum          // the sum of the first call of its group; zero if whoever read it has not made it
	canonicalTool string       // the tool's name in the action-governance profile
	retriedKey    callKey      // of metadata.retry.previous_tool_call_id; zero if there is none
	args          arguments

	contentSum  sum // of the message's bytes
	cachedIDSum sum // of what a copy of it has as well: its event id, or its decision's
	coreSum     sum // of the event without verdict, approval and annotations (AH-C-050)
	targetSum   sum // what its call is done to: see targetOf
	frameSum    sum // of core without arguments, redaction and phase: what a request and its evidence form share

	decisionID        string           // of a decision, or of the request it answers
	cachedReceiptKey  sum              // what a decision is known by: see decidingSum; zero if nobody has asked yet
	receiptDecisionID string           // the decision whose receipt a completion says that it ran on
	decisionRef       string           // the decision that the event's approval refers to (decision_ref)
	namedWorkflow     string           // of a request: the approval workflow that it names
	decision          *recordedVerdict // kindDecision; else nil
	verdictClaim      verdictClaim     // what the event says the verdict was
	approval          *approval        // what the event says about an approval; nil if that is nothing
	expectedDuration  time.Duration
	relatedEventIDs   []string // other ids that lead to the call: the paused event's id

	effect            effect
	outcome           string
	startedAt         time.Time
	hasMutationReason bool   // a mutation_reason is recorded
	lacksCallID       bool   // a Post event that has no id of its own, only that of the call it tries again (H-07)
	invalid           bool   // it does not follow its protocol, so it changes no state
	refusedNumber     *int64 // of a refused event in its session; nil if it has none
	refusedSession    string // the session that number is of, where it is not the key's; "" else
	preCommit         bool   // it claims to come before what it announces
	needsHuman        bool   // a person has to approve what it announces (risk.requires_human_approval)

	lineageRefs   lineageRefs // where it says that it belongs
	producerTimes producerTimes

	event          any                  // what the protocol's own checks make of it; nil for requests and decisions
	confirmation   *confirmation        // the question and answer that an invocation rests on; nil if that is nothing
	mandateRef     *events.MandateRef   // of a decision
	decisionExtras *decisionExtras      // what else it says; nil if that is nothing
	namesPolicies  bool                 // it names the policies that it was made by
	requestFlags   requestFlags         // of a request
	eventFindings  []*catalogue.Finding // checks that it fails by itself
}

func (f *fact) hasTool() bool {
	return f.callKey != callKey{tool: subject.NoSession} && f.callKey != callKey{}
}

func (f *fact) setCallKey(k callKey) {
	f.callKey, f.cachedKeyHash, f.firstCallSum = k, k.Hash(), sum{}
	f.found = nil
}

// callKeyHash is the hash of callKey; setCallKey has made it.
func (f *fact) callKeyHash() uint32 {
	if f.cachedKeyHash == 0 {
		f.cachedKeyHash = f.callKey.Hash()
	}
	return f.cachedKeyHash
}

// recordedVerdict is one recorded verdict.
type recordedVerdict struct {
	id          string
	seq         uint64
	at          time.Time
	verdict     events.Verdict
	expires     time.Time
	hasReceipt  bool
	argsDigest  string    // of the arguments; "" if it has none
	approval    *approval // nil if it says nothing of one
	eventID     string
	approvalRef string // how its approval is referred to, if that is not by the decision's id; only in recordings
}

// verdictClaim is a verdict that an event says it had.
type verdictClaim struct {
	verdict   events.Verdict // "" if it says nothing
	seq       uint64
	decidedAt time.Time
}

// approval is what an event or a decision says about an approval workflow.
type approval struct {
	status, workflow, action string
	resumePolicy             string // how the call is to come back
	decidedAt, expiresAt     time.Time
}

// valueOrZero is what is known of it, which may be nothing.
func (a *approval) valueOrZero() approval {
	if a == nil {
		return approval{}
	}
	return *a
}

// hasStatus reports whether it has a status.
func (a *approval) hasStatus(status string) bool { return a != nil && a.status == status }

// pointerOrNil is where a is kept, nil if it says nothing.
func (a approval) pointerOrNil() *approval {
	if a == (approval{}) {
		return nil
	}
	return &a
}

// parseClaimedVerdict reads a native verdict. Words that nobody knows deny.
func parseClaimedVerdict(word string) events.Verdict {
	v := events.Verdict(strings.ToLower(word))
	if word == "" || v.Valid() {
		return v
	}
	return events.Deny
}

// setCall names the call that a fact is about.
func (f *fact) setCall(callID, tool string) {
	f.callID, f.tool = boundID(callID), boundID(tool)
	f.setCallKey(callKeyOf(callID, tool))
}

// What a request and the evidence forms of its event may differ in (AH-C-050),
// and what a frame leaves out beside it.
var (
	coreOmits          = strictjson.NamesOf(map[string]bool{"annotations": true})
	coreMetadataOmits  = strictjson.NamesOf(map[string]bool{"admission_verdict": true, "approval": true})
	frameOmits         = strictjson.NamesOf(map[string]bool{"annotations": true, "tool_input": true, "evidence_phase": true})
	frameMetadataOmits = strictjson.NamesOf(map[string]bool{"admission_verdict": true, "approval": true, "redaction": true})
)

// memberNames are names of members.
type memberNames = strictjson.Names[bool]

func treeSum(tree map[string]any) sum {
	b, err := strictjson.Canonical(tree)
	if err != nil {
		return sum{}
	}
	return sumOfBytes(b)
}

// producerTimes is what a producer says of a call's time and place in a chain.
type producerTimes struct {
	happenedAt  time.Time // when it happened, by the producer's own clock; zero if that is not known
	completedAt time.Time
	durationMS  int64
	attempt     int64
}

// nonNegative is a producer's number, 0 if it is none that means something here.
func nonNegative(n *int64) int64 {
	if n == nil || *n < 0 {
		return 0
	}
	return *n
}

// sourceKey is one publisher of one tenant.
type sourceKey struct{ tenant, source string }

// holder is k as the tables know it.
func (k sourceKey) holder() tables.Holder { return tables.Holder{Tenant: k.tenant, Source: k.source} }

// idSum is the key of the fact's id in the history. The decoder has computed it.
func (f *fact) idSum() sum {
	if f.cachedIDSum == (sum{}) {
		if f.kind == kindDecision {
			f.cachedIDSum = sumOf("decision", f.decisionID)
		} else {
			f.cachedIDSum = sumOf("event", f.eventID)
		}
	}
	return f.cachedIDSum
}

// endsCall reports whether a remark says how a call ended or why it needed no verdict.
func (f *fact) endsCall() bool {
	return f.kind == kindStopped || f.kind == kindError || f.kind == kindFailOpen
}

func receiptKey(tenant, decisionID string) sum { return sumOf("receipt", tenant, decisionID) }

// ownReceiptKey is the receiptKey of the fact's own decision.
func (f *fact) ownReceiptKey() sum {
	if f.cachedReceiptKey == (sum{}) {
		f.cachedReceiptKey = receiptKey(f.key.tenant, f.decisionID)
	}
	return f.cachedReceiptKey
}

func callSum(k sessionKey, s callKey, occurrence int) sum {
	return sumOf("call", k.tenant, k.source, k.session, s.id, s.tool, strconv.Itoa(occurrence))
}

// singleEventFinding is a breach that one event proves.
func singleEventFinding(check, what string, f *fact) *catalogue.Finding {
	b := &catalogue.Finding{Check: check, Text: what, Seqs: []uint64{f.seq}, Call: f.callID}
	if f.eventID != "" {
		b.Events = []string{f.eventID}
	}
	return b
}

// confirmingMessage is where a question or its answer is on the log.
type confirmingMessage struct {
	id  string
	seq uint64
	at  time.Time // the broker's
}

// confirmation is the user's question that an invocation rests on, and its
// answer.
type confirmation struct {
	asked, accepted confirmingMessage
	explicit        bool // the question names the call
}

// maxIDBytes bounds ids: bytes of an id in a record; longer ids appear as "~h" and their SHA-256.
const maxIDBytes = 1024

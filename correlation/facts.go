package correlation

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
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
	groupLookedUp bool         // its session was looked through for its group,
	group         *callGroup   // which is this one; nil if there was none
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

	protocolEvent
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
	f.groupLookedUp, f.group = false, nil
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

// recordTimes notes what a fact claims; the first word on each counts.
func (x *details) recordTimes(f *fact) {
	if f.kind == kindPost {
		mergeTime(&x.claimedTimes.StartedAt, f.startedAt)
		mergeTime(&x.claimedTimes.CompletedAt, f.producerTimes.completedAt)
	}
	setDefault(&x.claimedTimes.DurationMS, f.producerTimes.durationMS)
	setDefault(&x.claimedTimes.Attempt, f.producerTimes.attempt)
}

func mergeTime(to *events.Time, from time.Time) {
	if !from.IsZero() && to.IsZero() {
		*to = events.At(from)
	}
}

// fillOptionalParts writes what there is of a record's durations, claims and parent. decided is
// when the verdict that counts was recorded; zero if there is none.
func (r *callRecordBuffer) fillOptionalParts(l *callView, decided time.Time) {
	r.Parent, r.Claimed, r.Durations = nil, nil, nil
	if of := &l.parentLink; !of.isZero() {
		r.parent = events.CallParent{CallID: callIDOf(of.callSum), Source: of.origin.source, Session: of.origin.session, By: linkNames[of.rank]}
		r.Parent = &r.parent
	}
	if l.claimedTimes != (events.CallClaim{}) {
		r.Claimed = &l.claimedTimes
	}
	requested, started, completed := l.stepTimes()
	r.micros = [...]int64{microsFrom(requested, decided), microsFrom(decided, started), microsFrom(started, completed)}
	for i, to := range [...]**int64{&r.durations.Decided, &r.durations.Started, &r.durations.Ran} {
		if *to = nil; r.micros[i] != noTimeSpan {
			*to, r.Durations = &r.micros[i], &r.durations
		}
	}
}

// noTimeSpan is that no time is known to have passed.
const noTimeSpan = -1

// microsFrom is how much time passed if both ends are known, and in this order.
func microsFrom(from, to time.Time) int64 {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return noTimeSpan
	}
	return to.Sub(from).Microseconds()
}

// stepTimes are when the call was requested, when it started and when it ended; zero
// where that is not known.
func (k *publicDetails) stepTimes() (requested, started, completed time.Time) {
	for i := range k.timeline {
		switch e := &k.timeline[i]; e.step {
		case stepRequested:
			keepFirstTime(&requested, e.brokerTime())
		case stepInvoked:
			keepFirstTime(&started, e.brokerTime())
		case stepCompleted:
			keepFirstTime(&completed, e.brokerTime())
		}
	}
	return requested, started, completed
}

// keepFirstTime keeps the first of the times that were seen.
func keepFirstTime(to *time.Time, at time.Time) {
	if to.IsZero() {
		*to = at
	}
}

// step is a step of a call's timeline.
type step uint8

const (
	noStep step = iota
	stepRequested
	stepDecided
	stepInvoked
	stepCompleted
	stepClosed
	stepTraced // a trace event
	stepAsked  // somebody has to agree
	stepApproved
	stepRefused
	stepCancelled
	stepExpired
)

// stepNames are how records name them (events.TimelineEntry).
var stepNames = [...]string{
	stepRequested: "requested", stepDecided: "decided", stepInvoked: "invoked", stepCompleted: "completed", stepClosed: "closed", stepTraced: "traced",
	stepAsked: "asked", stepApproved: "approved", stepRefused: "refused", stepCancelled: "cancelled", stepExpired: "expired",
}

// timelineEntry is an events.TimelineEntry in less room: there are several of every call.
type timelineEntry struct {
	seq      uint64
	second   int64 // of broker time
	nanos    int32
	step     step
	eventID  string
	protocol string
}

func newTimelineEntry(s step, seq uint64, at time.Time, eventID, protocol string) timelineEntry {
	return timelineEntry{seq: seq, second: at.Unix(), nanos: int32(at.Nanosecond()), step: s, eventID: boundID(eventID), protocol: protocol}
}

func (e *timelineEntry) brokerTime() time.Time { return time.Unix(e.second, int64(e.nanos)).UTC() }

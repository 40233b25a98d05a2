package correlation

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/correlation/aaepsession"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/hooksession"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/subject"
)

// kind is what a message means for a call.
type kind int

const (
	kindOther      kind = iota // nothing; only its event id counts
	kindRequest                // the admitter's copy of a request
	kindDecision               // a verdict
	kindPre                    // the producer announces the call
	kindPost                   // the producer reports its end
	kindStopped                // the producer says that it will not run (ToolUseBlocked, a fail mode that denied)
	kindError                  // the producer reports an error that ends the call
	kindFailOpen               // the publisher's fail mode let the call pass
	kindGrant                  // the producer says that the call was approved
	kindReply                  // a recorded reply to an admission request
	kindSessionEnd             // nothing of this session comes after it
	kindAnswer                 // a user's reply to an AAEP question
	kindAsked                  // the admitter's copy of a request about something that is no tool call
	kindCount                  // how many there are
)

// ran is whether a completion means that the call had effects.
type ran int

const (
	ranNo    ran = iota // denied, blocked, cancelled, timed out before it began
	ranMaybe            // AAEP error and timeout: its only words for "did not run", too
	ranYes
)

// sum is a shortened SHA-256: an id of bounded size for texts of any size.
type sum [16]byte

// none tells that it is no sum.
func (s *sum) none() bool {
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
		tenant: show(tenant), source: show(source), session: show(session),
	}
}

// show bounds an id that a producer chose.
func show(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return subject.Escape(s)
}

// slotKey is a call's identity within its session but for the occurrence. Calls
// without an id are told apart by tool.
type slotKey struct{ id, tool string }

func slotOf(callID, tool string) slotKey {
	if callID == "" {
		return slotKey{tool: subject.Escape(tool)}
	}
	return slotKey{id: subject.Escape(callID)}
}

// fact is one message in the terms of the state machine.
type fact struct {
	kind     kind
	seq      uint64
	at       time.Time // broker time
	protocol string
	origin
	eventID   string
	agent     string
	callID    string // as shown
	tool      string // as shown
	slot      slotKey
	slotHash  uint32  // see hashOfSlot
	looked    bool    // its session was looked through for its slot,
	found     *slot   // which is this one; nil if there was none
	hashes    hashes  // of whose it is
	firstCall sum     // the sum of the first call of its slot; zero if whoever read it has not made it
	canonical string  // the tool's name in the action-governance profile
	previous  slotKey // of metadata.retry.previous_tool_call_id; zero if there is none
	args      arguments

	content sum // of the message's bytes
	id      sum // of what a copy of it has as well: its event id, or its decision's
	core    sum // of the event without verdict, approval and annotations (AH-C-050)
	target  sum // what its call is done to: see targetOf
	frame   sum // of core without arguments, redaction and phase: what a request and its evidence form share

	decisionID string      // of a decision, or of the request it answers
	deciding   sum         // what a decision is known by: see decidingSum; zero if nobody has asked yet
	receiptOf  string      // the decision whose receipt a completion says that it ran on
	reference  string      // the decision that the event's approval refers to (decision_ref)
	named      string      // of a request: the approval workflow that it names
	decision   *verdictRec // kindDecision; else nil
	claim      claim       // what the event says the verdict was
	approval   *approval   // what the event says about an approval; nil if that is nothing
	expected   time.Duration
	links      []string // other ids that lead to the call: the paused event's id

	ran       ran
	outcome   string
	startedAt time.Time
	mutation  bool   // a mutation_reason is recorded
	unnamed   bool   // a Post event that has no id of its own, only that of the call it tries again (H-07)
	invalid   bool   // it does not follow its protocol, so it changes no state
	number    *int64 // of a refused AAEP event; nil if it has none
	numberIn  string // the session that number is of, where it is not the key's; "" else
	preCommit bool   // it claims to come before what it announces
	human     bool   // a person has to approve what it announces (risk.requires_human_approval)

	lineage lineage // where it says that it belongs
	said    said

	aaep     *aaepsession.Event // what its session makes of it; nil for requests and decisions
	hook     *hooksession.Event
	rests    *confirmation // what an AAEP invocation rests on; nil if that is nothing
	evidence *aump.Evidence
	under    *events.MandateRef  // of a decision
	more     *onDecision         // what else it says; nil if that is nothing
	judgedBy bool                // it names the policies that it was made by
	marks    marks               // of a request
	notes    []*catalogue.Breach // checks that it fails by itself
}

func (f *fact) hasTool() bool {
	return f.slot != slotKey{tool: subject.NoSession} && f.slot != slotKey{}
}

func (f *fact) setSlot(k slotKey) {
	f.slot, f.slotHash, f.firstCall = k, k.hash(), sum{}
	f.looked, f.found = false, nil
}

// hashOfSlot is the hash of slot; setSlot has made it.
func (f *fact) hashOfSlot() uint32 {
	if f.slotHash == 0 {
		f.slotHash = f.slot.hash()
	}
	return f.slotHash
}

// verdictRec is one recorded verdict.
type verdictRec struct {
	id      string
	seq     uint64
	at      time.Time
	verdict events.Verdict
	expires time.Time
	receipt bool
	digest  string    // of the arguments; "" if it has none
	pending *approval // nil if it says nothing of one
	eventID string
	ref     string // how its approval is referred to, if that is not by the decision's id; only in recordings
}

// claim is a verdict that an event says it had.
type claim struct {
	verdict   events.Verdict // "" if it says nothing
	seq       uint64
	decidedAt time.Time
}

// approval is what an event or a decision says about an approval workflow.
type approval struct {
	status, workflow, action string
	resume                   string // how the call is to come back
	decidedAt, expiresAt     time.Time
}

// value is what is known of it, which may be nothing.
func (a *approval) value() approval {
	if a == nil {
		return approval{}
	}
	return *a
}

// is tells whether it has a status.
func (a *approval) is(status string) bool { return a != nil && a.status == status }

// ifKnown is where a is kept, nil if it says nothing.
func (a approval) ifKnown() *approval {
	if a == (approval{}) {
		return nil
	}
	return &a
}

// claimed reads a native verdict. Words that nobody knows deny.
func claimed(word string) events.Verdict {
	v := events.Verdict(strings.ToLower(word))
	if word == "" || v.Valid() {
		return v
	}
	return events.Deny
}

package correlation

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// closing says what closed a call that has no Post event.
type closing uint8

const (
	notClosed    closing = iota
	byPost               // a Post event: nothing more is expected
	byDeny               // a verdict
	byStop               // ToolUseBlocked, or a fail mode that denied
	byError              // ErrorOccurred
	byDeadline           // it stayed open too long, or room was needed
	bySessionEnd         // its session ended first
)

// call is one occurrence of a tool call: what is looked at of every one that is
// remembered, and its details, which are packed while nobody asks about a call
// that is over. Whoever comes by a call that may be over has to unfold it.
type call struct {
	session    *session
	slot       *slot
	occurrence int
	order      uint64 // in which calls were armed, over all sessions
	hash       sum    // of what makes its call_id, once that was needed
	previous   *call  // the call that this one tries again
	state      events.CallState
	closing    closing
	outline    outline // of what is packed
	room       int     // of Options.MaxArgsBytes, that its differences take

	*details
	packed string // the details, if those are nil
}

// details are what is known of a call beside its place.
type details struct {
	face

	args      arguments // the request's, else the pre event's
	executed  arguments
	target    sum    // what it is done to: see targetOf; zero if that is not known
	canonical string // its tool's name in the action-governance profile; "" if it has none
	rank      int    // how good the source of its names is

	hasRequest, hasPre, hasPost bool
	failOpen                    bool
	human                       bool // a person has to approve it
	replaced                    bool // another call uses the approval that it waited for
	preProtocol                 string
	preAt                       time.Time
	preEvent, requestEvent      string
	postEvent, postProtocol     string
	events                      []string // ids of requests and pre events
	joins                       []string // decision ids under which the session finds it
	frame                       sum      // of the first of its events
	frameEvent                  string
	frameKind                   kind

	argsRank int

	decisions []verdictRec
	claim     claim
	pending   *approval // the approval that is waited for, as the pre event says
	granted   *approval // what an event said of it since

	missing string // finding_id of its missing_completion, "" if none stands
	// missingCheck is the finding_id of the same under the protocol's check.
	missingCheck string
	invokedAt    time.Time // by AAEP, as its event says
	invokedBy    string
	invokedSeq   uint64        // the place of that event in the log
	excuses      []madeFinding // that a late word may take back
	cameFirst    madeFinding   // AH-C-083, by the id of the event that came first
	endedAt      time.Time     // by its producer's clock, if no pre event or request had come; or stopped
	mutated      bool          // its completion gives a reason for other arguments
	stated       stated        // what its events claim of verdict and approval
	thread       sum           // see lineage.thread; of a call without an id
	again        sum           // the slot of the call that its events say it tries again; see slotSum

	tooLate madeBy // it came after a handoff of its agent

	deadline time.Time
	emitted  emitted
	records  records
}

// face is what records show of the details.
type face struct {
	protocol, tool, id, agent string

	inferred bool
	outcome  string
	execSeq  uint64
	matched
	rules    []string
	timeline []timelineEntry

	views
	chain   chain
	trace   string // W3C traceparent
	claimed events.CallClaim
	binding string // see events.Call.Binding
}

// records counts the records of a call that were put out, by state.
type records [len(states)]uint32

// states are all states of a call, in the order of records.
var states = [...]events.CallState{events.CallOpen, events.CallCompleted, events.CallFailed, events.CallDenied, events.CallAbandoned, events.CallOrphaned}

func (r *records) none() bool { return *r == records{} }

// add counts one more record of a state and gives how many there are.
func (r *records) add(s events.CallState) int {
	i := slices.Index(states[:], s)
	r[i]++
	return int(r[i])
}

// emitted is what the last record of a call said, to see whether a new one says
// more.
type emitted struct {
	state                             events.CallState
	outcome, match, decision, verdict string
	findings                          int
	execSeq                           uint64
	seen, posts                       protocolSet
	next                              sum  // the attempt after it
	kin                               int8 // the rank of what its session belongs to
}

// ranks of facts as sources of a call's names and arguments.
var ranks = [kindCount]struct{ names, args int }{kindDecision: {names: 1}, kindRequest: {2, 2}, kindPre: {3, 1}}

func take(to *string, from string, better bool) {
	if from != "" && (better || *to == "") {
		*to = from
	}
}

// attach notes that a fact belongs to the call.
func (c *call) attach(f *fact) {
	c.describe(f)
	c.see(f)
	c.sayTimes(f)
	take(&c.trace, f.lineage.trace, false)
	c.human = c.human || f.human
	if c.slot.key.id == "" && (c.thread.none() || f.kind == kindPre) {
		c.thread = f.lineage.thread()
	}
	switch f.kind {
	case kindRequest:
		c.hasRequest = true
		c.requestEvent = first(c.requestEvent, f.eventID)
		c.noteEvent(f)
		c.step(stepRequested, f)
	case kindPre:
		if !c.hasPre {
			c.hasPre, c.preProtocol, c.preAt, c.preEvent = true, f.protocol, f.at, f.eventID
		}
		if f.aaep != nil && c.invokedBy == "" {
			c.invokedAt, c.invokedBy, c.invokedSeq = f.aaep.Time, f.eventID, f.seq
		}
		c.noteEvent(f)
		c.step(stepInvoked, f)
		c.confirmed(f)
	case kindDecision:
		if len(c.decisions) == maxDecisions {
			c.decisions = append(c.decisions[:0], c.decisions[1:]...)
		}
		if c.decisions == nil {
			c.decisions = c.session.machine.spare.verdicts(1)
		}
		c.decisions = append(c.decisions, *f.decision)
		c.session.hear(f.decision.verdict)
		c.step(stepDecided, f)
	}
	if f.previous != (slotKey{}) {
		c.again = slotSum(f.previous)
	}
	c.learn(f)
}

// learn takes what a fact says about verdict and approval.
func (c *call) learn(f *fact) {
	if f.claim.verdict != "" {
		c.claim = f.claim
		c.session.hear(f.claim.verdict)
	}
	c.stated.note(f)
	switch {
	case f.approval == nil:
	case f.approval.is(statusPending):
		c.pending = f.approval
	default:
		c.granted = f.approval
	}
}

func (c *call) describe(f *fact) {
	rank := ranks[f.kind]
	better := rank.names >= c.rank
	c.rank = max(c.rank, rank.names)
	take(&c.protocol, f.protocol, better)
	take(&c.tool, f.tool, better)
	take(&c.id, f.callID, better)
	take(&c.agent, f.agent, better)
	take(&c.canonical, f.canonical, better)
	if !f.target.none() {
		c.target = f.target
	}
	argsRank := rank.args
	if f.args.known && argsRank > c.argsRank {
		c.session.machine.releaseArgs(c)
		c.args, c.argsRank = f.args, argsRank
		c.session.machine.keepArgs(c)
	}
}

func (c *call) noteEvent(f *fact) {
	if f.eventID == "" {
		return
	}
	if c.frameEvent == "" {
		c.frame, c.frameEvent, c.frameKind = f.frame, f.eventID, f.kind
	}
	if !c.knows(f.eventID) && len(c.events) < maxCallEvents {
		if c.events == nil {
			c.events = c.session.machine.spare.texts(1)
		}
		c.events = append(c.events, f.eventID)
	}
}

// knows reports whether a request or pre event with this id belongs to the call.
func (c *call) knows(eventID string) bool {
	for _, e := range c.events {
		if e == eventID && eventID != "" {
			return true
		}
	}
	for _, d := range c.decisions {
		if d.eventID == eventID && eventID != "" {
			return true
		}
	}
	return false
}

func (c *call) step(s step, f *fact) {
	if c.timeline == nil {
		c.timeline = c.session.machine.spare.timeline(usualSteps)
	}
	if len(c.timeline) < maxTimeline {
		c.timeline = append(c.timeline, newStep(s, f.seq, f.at, f.eventID, f.protocol))
	}
}

func (c *call) open() bool { return c.state == events.CallOpen }

// same tells whether a fact is about the same tool and arguments as the call.
func (c *call) same(f *fact) comparison {
	if c.tool != "" && f.tool != "" && c.tool != f.tool {
		return different
	}
	result := compare(&c.args, &f.args)
	for i := range c.decisions {
		if result == equal {
			return equal
		}
		if r := againstVerdict(&f.args, c.decisions[i].digest); r != unknown {
			result = r
		}
	}
	return result
}

// lastDecision is the verdict that counts: the latest one recorded.
func (c *call) lastDecision() *verdictRec {
	if n := len(c.decisions); n > 0 {
		return &c.decisions[n-1]
	}
	return nil
}

func (c *call) weak() bool { return c.session.key.session == noSession }

// now is what a record would say, by the verdict that stands.
func (c *call) now(st *standing) emitted {
	e := emitted{state: c.state, outcome: c.outcome, match: c.match, findings: len(c.rules), execSeq: c.execSeq, seen: c.seen, posts: c.posts, next: c.chain.to,
		kin: max(c.session.kin, c.emitted.kin)}
	if st.ledger != nil {
		e.decision, e.verdict = st.ledger.id, string(st.verdict)
	}
	return e
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

package correlation

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/events"
)

// likeness is a call as it was when it was put out: what its record is made of, once
// somebody encodes it. It is never changed after it was made.
type likeness struct {
	face  // of its own
	steps [usualSteps]timelineEntry

	prefix     string // of its subject
	who        *origin
	occurrence int
	state      events.CallState
	hash       sum // see call.sum
	nth        int // record of its state
	belongs    kinship

	// admitted and executed are the digests of its arguments.
	admitted, executed string
	judged             bool // there is a recorded verdict
	decision           string
	decisionSeq        uint64
	decidedAt          time.Time // zero if the verdict is another call's
	verdict            events.Verdict
}

// likenesses is memory for them.
type likenesses struct {
	made  []likeness  // for several at a time
	spare []*likeness // that were used, and may be again
}

const (
	likenessesAtOnce = 4 // memory is made for
	maxLikenesses    = 1024
)

func (l *likenesses) next() *likeness {
	if last := len(l.spare) - 1; last >= 0 {
		one := l.spare[last]
		l.spare = l.spare[:last]
		return one
	}
	if len(l.made) == 0 {
		l.made = make([]likeness, likenessesAtOnce)
	}
	one := &l.made[0]
	l.made = l.made[1:]
	return one
}

// Reuse takes back what an output was to be encoded from, for outputs to come. Who
// does so spares the garbage collector most of its work. The output is encoded or
// will never be, and so is every copy of it; what was encoded stays good.
func (c *Correlator) Reuse(o *Output) {
	if l := &c.m.likenesses; o.call != nil && len(l.spare) < maxLikenesses {
		l.spare = append(l.spare, o.call)
	}
	o.call = nil
}

// of makes it the likeness of a call; st is the verdict that stands for it.
func (l *likeness) of(c *call, st *standing) {
	l.face = c.face
	l.timeline = append(l.steps[:0], c.timeline...)
	if c.rules != nil || c.differences != nil {
		l.rules, l.differences = slices.Clone(c.rules), slices.Clone(c.differences)
	}
	l.who, l.occurrence, l.state, l.hash = c.session.origin, c.occurrence, c.state, c.sum()
	l.belongs = kinship{}
	if c.session.kin != 0 {
		l.belongs, _ = c.session.machine.parents.get(c.session.key)
	}
	l.admitted, l.executed = c.args.keyed, c.executed.keyed
	if l.judged = st.ledger != nil; !l.judged {
		return
	}
	d := st.ledger
	l.verdict, l.decision, l.decisionSeq, l.decidedAt = st.verdict, d.id, d.seq, d.at
	if st.inherited {
		l.decidedAt = time.Time{}
	}
	if d.digest != "" {
		l.admitted, l.executed = d.digest, c.executed.in(d.digest)
	}
}

// written is memory for a record while it is encoded.
type written struct {
	events.Call
	durations events.CallDurations
	micros    [3]int64 // of durations
	parent    events.CallParent
}

var writing = sync.Pool{New: func() any {
	return &written{Call: events.Call{Timeline: make([]events.TimelineEntry, 0, usualSteps)}}
}}

// encode gives the record, where it belongs and its id.
func (l *likeness) encode() (subject, id string, body []byte, err error) {
	r := writing.Get().(*written)
	defer writing.Put(r)
	var room [256]byte
	b := appendSubject(room[:0], l.prefix, string(l.state), l.who.key)
	end := len(b)
	both := string(l.appendID(b))
	r.CallID = both[end : end+callIDSize]
	r.set(l)
	body, err = events.Encode(&r.Call)
	return both[:end], both[end:], body, err
}

// appendID appends the id of the record; it begins with the call's own.
func (l *likeness) appendID(b []byte) []byte {
	b = append(append(appendCallID(b, &l.hash), '-'), l.state...)
	if l.nth > 1 {
		b = strconv.AppendInt(append(b, '-'), int64(l.nth), 10)
	}
	return b
}

// set writes everything but the call_id.
func (r *written) set(l *likeness) {
	r.Tenant, r.Source, r.Session = l.who.tenant, l.who.source, l.who.session
	r.Protocol, r.Agent, r.ToolCallID, r.Occurrence, r.Tool = l.protocol, l.agent, l.id, l.occurrence, l.tool
	r.State, r.Outcome, r.ExecutionSeq, r.Match = l.state, l.outcome, l.execSeq, l.match
	r.Inferred, r.WeakScope, r.Findings = l.inferred, l.who.key.session == noSession, l.rules
	r.Protocols, r.MatchReason, r.Differences, r.MoreDifferences = l.seen.names(), l.reason, l.differences, l.more
	r.Attempt, r.RetriedFrom, r.RetriedTo = int(l.chain.attempt), callIDOf(l.chain.from), callIDOf(l.chain.to)
	r.Trace, r.Binding = l.trace, l.binding
	r.AdmittedDigest, r.ExecutedDigest = l.admitted, l.executed
	r.Verdict, r.DecisionID, r.DecisionSeq = "", "", 0
	decided := time.Time{}
	if l.judged {
		r.Verdict, r.DecisionID, r.DecisionSeq, decided = l.verdict, l.decision, l.decisionSeq, l.decidedAt
	}
	r.parts(l, decided)
	r.steps(l)
}

// steps writes the timeline, which names a protocol only where it is another than
// the call's.
func (r *written) steps(l *likeness) {
	r.Timeline = r.Timeline[:0]
	for i := range l.timeline {
		e := &l.timeline[i]
		shown := events.TimelineEntry{Step: stepNames[e.step], Seq: e.seq, At: events.At(e.at()), EventID: e.eventID}
		if e.protocol != l.protocol {
			shown.Protocol = e.protocol
		}
		r.Timeline = append(r.Timeline, shown)
	}
}

// sequences are those of all that is known of the call.
func (c *call) sequences() []uint64 {
	var list []uint64
	for _, s := range c.timeline {
		if s.seq != 0 {
			list = append(list, s.seq)
		}
	}
	return list
}

// in adds the places of its events that belong to another call than the one that
// it is reported of.
func (v *violation) in(o *call) *violation {
	v.seqs = append(v.seqs, o.placesOf(v.events)...)
	return v
}

// proofs are the sequences that prove it, in order: of its events, and of the
// message that showed it. Where time does, and what was said before, that is all
// of the call.
func (v *violation) proofs(c *call, f *fact) []uint64 {
	list := slices.Clone(v.seqs)
	if f.seq != 0 {
		list = append(list, f.seq)
	}
	switch {
	case c != nil && len(list) == 0:
		list = c.sequences()
	case c != nil:
		list = append(list, c.placesOf(v.events)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// placesOf are the sequences of events that belong to the call, as far as it
// remembers them.
func (c *call) placesOf(ids []string) (list []uint64) {
	for _, id := range ids {
		i := slices.IndexFunc(c.timeline, func(e timelineEntry) bool { return e.eventID == id })
		if i >= 0 && c.timeline[i].seq != 0 {
			list = append(list, c.timeline[i].seq)
		}
	}
	return list
}

// callID is the same for the same call in every replay.
func (c *call) callID() string {
	var room [callIDSize]byte
	h := c.sum()
	return string(appendCallID(room[:0], &h))
}

// callIDSize is how long a call_id is.
const callIDSize = len(callIDPrefix) + 2*len(sum{})

const callIDPrefix = "call_"

// sum gives what the call_id is made of.
func (c *call) sum() sum {
	if c.hash == (sum{}) {
		c.hash = callSum(c.session.key, c.slot.key, c.occurrence)
	}
	return c.hash
}

func callSum(k sessionKey, s slotKey, occurrence int) sum {
	return sumOf("call", k.tenant, k.source, k.session, s.id, s.tool, itoa(occurrence))
}

func appendCallID(b []byte, h *sum) []byte { return appendHex(append(b, callIDPrefix...), h) }

package correlation

import (
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// machine is the state machine behind the log's correlator and the offline
// check. It sees facts only.
type machine struct {
	opts     Options  `snapshot:"-"` // given anew
	prefixes prefixes `snapshot:"-"` // made of opts
	// offline says that facts come from a recording: there is no ledger of
	// approvals, so what events say of them counts.
	offline bool
	until   time.Time `snapshot:"-"` // by which the events of a recording had been received; zero if that is not known

	logTime
	sessions *lru[sessionKey, *session]
	sources  *lru[sourceKey, *sourceState]
	eventIDs int // that are remembered of all sources
	tombs    *window[sessionKey, int]
	watch
	kin
	denials  *lru[sum, *denial] // of calls that are forgotten
	handoffs *window[sessionKey, []handedOver]
	switches map[string]switches // by tenant token
	due      deadlines
	quiet    time.Time `snapshot:"-"` // until when time alone changes nothing; see pass
	order    uint64    // calls armed so far

	stats      Stats
	reported   int      // violations seen, those that were put out before included
	out        []Output `snapshot:"-"` // of one message
	loose      []*call  `snapshot:"-"` // calls that may be over and whose details are not folded
	spare      spare    `snapshot:"-"`
	likenesses `snapshot:"-"`
	glanced    uint64 `snapshot:"-"` // what was looked at means nothing, but has to be read
}

func newMachine(opts Options) *machine {
	return &machine{
		opts:     opts.withDefaults(),
		prefixes: prefixes{calls: prefix(opts.Space, subject.Calls), findings: prefix(opts.Space, subject.Findings)},
		sessions: newLRU[sessionKey, *session](),
		sources:  newLRU[sourceKey, *sourceState](),
		tombs:    newWindow[sessionKey, int](maxTombstones),
		watch:    newWatch(),
		kin:      newKin(),
		denials:  newLRU[sum, *denial](),
		handoffs: newWindow[sessionKey, []handedOver](maxHandoffs),
		switches: map[string]switches{},
	}
}

// prefixes are how the subjects of outputs begin.
type prefixes struct{ calls, findings string }

func prefix(s subject.Space, c subject.Class) string { return strings.TrimSuffix(s.All(c), ">") }

// step takes one fact; the outputs are collected in m.out.
func (m *machine) step(f *fact) {
	if f.invalid {
		m.refuse(f)
		return
	}
	n := m.novelty(f)
	if n == duplicate {
		m.stats.Duplicates++
		return
	}
	m.follow(f, n)
	m.relate(f)
	if n == amended {
		m.amend(f)
		return
	}
	switch f.kind {
	case kindRequest, kindPre, kindDecision:
		m.announce(f)
	case kindPost:
		m.complete(f)
	case kindStopped, kindError, kindFailOpen, kindGrant, kindReply:
		m.remark(f)
	case kindSessionEnd:
		m.endSession(f)
	}
}

// announce takes a request copy, a decision or a pre event: it attaches to the
// call it belongs to or arms a new one.
func (m *machine) announce(f *fact) {
	m.nameByRequest(f)
	if !f.hasTool() {
		return
	}
	s := m.session(f)
	s.requested = s.requested || f.kind == kindRequest && f.protocol == protoAgentHook
	c := m.place(s, f)
	if c == nil {
		c = m.arm(s, f)
	} else {
		m.conflict(c, f)
		m.resumed(c, f)
		m.attach(c, f)
		if before := s.named(f); before != nil {
			m.follows(c, before)
		}
	}
	m.register(c, f)
	if f.decision != nil && f.decision.receipt {
		m.issue(f)
	}
	if m.handoffs.len() > 0 || f.protocol == subject.ProtoHandoff {
		m.handoff(s, c, f)
	}
	switch f.protocol {
	case protoAAEP:
		m.secondInvocation(s, c, f)
	case protoAgentHook:
		m.comeback(s, c, f)
	}
	s.join(c, f.decisionID)
	m.extend(c, f)
	m.useWorkflow(c, f)
	m.admitted(c, f)
	m.claimsUnapproved(c, f)
	m.takesOver(s, c, f)
	m.settle(c, f)
	m.judgeClaims(c, f)
	m.judgeReference(c, f)
	if len(s.early) > 0 {
		m.recall(s, c)
	}
	m.emit(c)
}

// nameByRequest gives a decision the call of its request where its record names none:
// the admitter refuses names that are too long and leaves them out of the record, but
// the request has them.
func (m *machine) nameByRequest(f *fact) {
	if f.kind != kindDecision || f.slot.id != "" || f.decisionID == "" {
		return
	}
	s, known := m.sessions.peek(f.key)
	if !known {
		return
	}
	if c := s.decided(f.decisionID); c != nil && c.slot.key != f.slot && (f.tool == "" || f.tool == c.tool) {
		f.callID = c.id
		f.setSlot(c.slot.key)
	}
}

// amend takes a copy of an earlier event that differs only in what it says
// about verdict and approval: the request form and the evidence form of one
// event (AH-C-050).
func (m *machine) amend(f *fact) {
	if f.kind != kindPre {
		return
	}
	s, ok := m.sessions.get(f.key)
	if !ok {
		return
	}
	s.lastSeen = m.here()
	if c := s.findIn(f.slot, f.eventID, func(c *call) bool { return c.knows(f.eventID) }); c != nil {
		before := c.standing()
		c.learn(f)
		m.settle(c, f)
		m.judgeClaims(c, f)
		m.judgeReference(c, f)
		m.heardLate(c, c.end(), before)
		m.emit(c)
	}
}

// attach notes that an announcement belongs to a call, which may be over.
func (m *machine) attach(c *call, f *fact) {
	if f.kind == kindPre && c.hasPost || f.kind == kindRequest && c.state == events.CallOrphaned {
		m.announceLate(c, f)
		return
	}
	c.attach(f)
}

// arm makes a new occurrence.
func (m *machine) arm(s *session, f *fact) *call {
	sl := s.slot(f)
	other := sl.oldestOpen()
	c := m.occurrence(s, f)
	c.state = events.CallOpen
	before := s.predecessor(f)
	if before != nil {
		c.previous = before.judged()
	}
	sl.calls = append(sl.calls, c)
	c.attach(f)
	s.open = append(s.open, c)
	m.stats.Open++
	if before != nil {
		m.follows(c, before)
	}
	m.cameFirst(sl, c, f)
	if other != nil && f.slot.id != "" && f.protocol != protoAAEP {
		m.report(ruleReused, c, f, about(other.firstEvent(), f.eventID).in(other).detail(detailReusedOpen))
	}
	if f.kind != kindDecision || f.decision.verdict != events.Deny {
		m.emit(c)
	}
	m.makeRoom(s, sl)
	return c
}

// judged is the call in a chain of retries whose verdict stands: no number of
// retries takes it out of reach.
func (c *call) judged() *call {
	for c.own().verdict == "" && c.previous != nil {
		c = c.previous.unfold()
	}
	return c
}

// occurrence makes the next call of a slot, neither open nor remembered yet.
func (m *machine) occurrence(s *session, f *fact) *call {
	sl := s.slot(f)
	sl.count++
	m.order++
	m.countCalls(s, 1)
	c := &call{session: s, slot: sl, occurrence: sl.count, order: m.order, details: m.blank()}
	if c.occurrence == 1 {
		c.hash = f.firstCall
	}
	return c
}

// extend moves a call's deadline.
func (m *machine) extend(c *call, f *fact) {
	if !c.open() {
		return
	}
	at := m.now.Add(max(m.opts.MissingAfter, 2*min(f.expected, maxExpected)))
	at = m.waiting(at, f.approval)
	if f.decision != nil {
		at = m.waiting(at, f.decision.pending)
	}
	m.due.set(c, at)
	m.quiet = earlier(m.quiet, at)
	if len(m.due) > 2*m.stats.Open+64 {
		m.compact()
	}
}

// waiting is a deadline that leaves an approval its time.
func (m *machine) waiting(at time.Time, a *approval) time.Time {
	if a == nil || a.expiresAt.IsZero() {
		return at
	}
	end := m.ofClock(a.expiresAt)
	if limit := m.now.Add(maxApprovalWait); end.After(limit) {
		return later(at, limit)
	}
	return later(at, end.Add(m.opts.MissingAfter))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// compact drops stale deadlines; there may be many when one call is asked for
// again and again.
func (m *machine) compact() {
	kept := m.due[:0]
	for _, d := range m.due {
		if !d.stale() {
			kept = append(kept, d)
		}
	}
	clear(m.due[len(kept):])
	m.due = kept
	m.due.init()
}

// settle closes a call that was denied, and judges a verdict that came late.
func (m *machine) settle(c *call, f *fact) {
	if c.hasPost {
		if f.kind == kindDecision && len(c.decisions) == 1 {
			m.lateVerdict(c, f)
		}
		return
	}
	if c.own().verdict == events.Deny && (c.open() || c.state == events.CallAbandoned) {
		m.withdraw(c, f)
		m.close(c, events.CallDenied, byDeny)
	}
}

// close ends a call or changes how it ended.
func (m *machine) close(c *call, state events.CallState, why closing) {
	wasOpen := c.open()
	c.session.refusals = c.session.refusals || why == byDeny || why == byStop
	c.state, c.closing = state, why
	if wasOpen {
		m.stats.Open--
		m.releaseArgs(c)
		c.session.remember(c)
	}
}

// abandon closes a call that will not be completed in time.
func (m *machine) abandon(c *call, why closing, f *fact) {
	m.close(c, events.CallAbandoned, why)
	m.missing(c, f)
	m.judgeClaims(c, f)
	m.emit(c)
}

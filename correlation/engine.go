package correlation

import (
	"iter"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// engine holds what was admitted against what ran: it is behind the log's correlator and
// the offline check. It takes facts only, and is the order of the steps: what a step knows
// is in the parts. A part calls only the parts that it holds; only the engine, through the
// small interfaces sessionRegister and originSharer, is called back.
type engine struct {
	opts *engineOptions `snapshot:"-"` // given anew

	calls    *calls // before the parts that refer to calls: a restored snapshot reads it first
	history  *history
	timers   *timers
	lineage  *lineage
	findings *findings
	judge    *judge

	// What protocols and publishers say.
	trackers *trackers
	protocolParts

	// What admission says.
	admissions *admissions
	approvals  *approvals
	receipts   *receipts
	handoffs   *handoffs

	stats      Stats  // Seq, Messages, Duplicates and Evicted; the parts count the rest
	prefetched uint64 `snapshot:"-"` // what Ahead read: it means nothing, but has to be used
}

// engineOptions are the options of the engine and all of its parts.
type engineOptions struct {
	Options
	// fromRecording says that facts come from a recording: there is no record of
	// approvals, so what events say of them counts.
	fromRecording bool
	recordedUntil time.Time // by which the events of a recording had been received; zero if that is not known
}

func newEngine(opts Options) *engine {
	e := &engine{timers: &timers{}, history: newHistory(), lineage: newLineage()}
	e.findings = newFindings(e.timers, e.history, e.lineage)
	e.trackers = newTrackers(e.timers, e.findings)
	e.admissions, e.approvals, e.receipts = newAdmissions(e.findings, e.history), newApprovals(e.findings), newReceipts(e.findings, e.history)
	e.handoffs, e.protocolParts = newHandoffs(e.findings), newProtocolParts()
	e.calls = newCalls(e.timers, e.findings)
	e.judge = &judge{findings: e.findings, calls: e.calls, approvals: e.approvals, receipts: e.receipts, trackers: e.trackers}
	e.configure(&engineOptions{Options: opts.withDefaults()})
	return e
}

// configure gives the options to the parts. They are no state: a restored engine gets
// them anew.
func (e *engine) configure(o *engineOptions) {
	e.opts, e.history.opts, e.timers.opts = o, o, o
	e.approvals.opts, e.receipts.opts = o, o
	e.trackers.opts = o
	e.calls.opts, e.judge.opts = o, o
	e.findings.configure(o)
	e.configureProtocols(e, o)
}

// processFact applies one fact; the part findings collects the outputs.
func (e *engine) processFact(f *fact.Fact) {
	if f.Invalid {
		e.refuseEvent(f)
		return
	}
	n, conflict, before := e.history.classifyNovelty(f)
	if conflict {
		e.findings.reportRule(ruleConflict, nil, f, findingFrom(f.EventID).withContent(f.CoreSum).withSeq(before))
	}
	if n == duplicate {
		e.stats.Duplicates++
		return
	}
	e.trackFact(f, n)
	e.lineage.resolveParentSession(f, e)
	if n == amended {
		e.amendCall(f)
		return
	}
	switch f.Kind {
	case fact.KindRequest, fact.KindPre, fact.KindDecision:
		e.announceCall(f)
	case fact.KindPost:
		e.completeCall(f)
	case fact.KindStopped, fact.KindError, fact.KindFailOpen, fact.KindApproval, fact.KindAdmissionReply:
		e.handleCallUpdate(f)
	case fact.KindSessionEnd:
		e.endSession(f)
	}
}

// ensureSession finds a session or makes it, and notes that it is active.
func (e *engine) ensureSession(f *fact.Fact) *session {
	if s := e.calls.active(f); s != nil {
		return s
	}
	if e.calls.isFull() {
		e.evictSession(tables.ByPlaces, f.Key)
	}
	return e.calls.addSession(e.SharedOrigin(f), e.lineage.parentOf(f.Key).rank)
}

// evictSession closes and forgets a session for something of another one, which stays: see
// surplus. It reports whether there was one.
func (e *engine) evictSession(by tables.Measure, stays fact.SessionKey) bool {
	s := e.calls.surplus(by, stays)
	if s == nil {
		return false
	}
	e.stats.Evicted++
	for len(s.open) > 0 {
		e.abandonCall(s.open[0], closedByDeadline, &fact.Fact{At: e.timers.Now()})
	}
	e.calls.forgetSession(s)
	return true
}

// enforceCallBounds abandons and forgets what the bounds of Options leave no room for.
// The session that is being worked on stays.
func (e *engine) enforceCallBounds(s *session, sl *callGroup) {
	if len(sl.calls) > maxOpenPerID {
		if open := sl.openCalls(); len(open) > maxOpenPerID {
			e.abandonCall(open[0], closedByDeadline, &fact.Fact{At: e.timers.Now()})
		}
	}
	if len(s.open) > e.opts.MaxOpenPerSession {
		e.abandonCall(s.open[0], closedByDeadline, &fact.Fact{At: e.timers.Now()})
	}
	for _, by := range [...]tables.Measure{tables.ByCalls, tables.ByIDs} {
		for e.calls.exceeds(by) && e.evictSession(by, s.Key) {
		}
	}
}

// endSession abandons what is still open when a session ends.
func (e *engine) endSession(f *fact.Fact) {
	if f.Key.Session == noSession {
		return
	}
	s := e.calls.touch(f.Key)
	if s == nil {
		return
	}
	for len(s.open) > 0 {
		c := s.open[0]
		c.addStep(stepClosed, f)
		e.abandonCall(c, closedBySessionEnd, f)
	}
}

// SharedOrigin is a fact's origin to keep. Sessions of one publisher share the names of
// that, and a session's calls and what follows their order share all of it.
func (e *engine) SharedOrigin(f *fact.Fact) *fact.Origin {
	if s := e.calls.find(f.Key); s != nil && *s.Origin == f.Origin {
		return s.Origin
	}
	if w := e.trackers.find(f.Key, f.Protocol); w != nil && *w.origin == f.Origin {
		return w.origin
	}
	o := f.Origin
	names := e.history.sharedNames(o.Key.Publisher())
	o.Key.Tenant, o.Key.Source = names.Tenant, names.Source
	for _, n := range [...]struct {
		name *string
		key  string
	}{{&o.Tenant, o.Key.Tenant}, {&o.Source, o.Key.Source}, {&o.Session, o.Key.Session}} {
		if *n.name == n.key {
			*n.name = n.key
		}
	}
	return &o
}

// ensureProtocolSession finds the session of a fact or begins to follow it.
func (e *engine) ensureProtocolSession(f *fact.Fact) *protocolSession {
	if w := e.trackers.active(f); w != nil {
		return w
	}
	return e.trackers.follow(f, e.SharedOrigin(f))
}

// trackFact hands a fact to its session.
func (e *engine) trackFact(f *fact.Fact, n novelty) {
	if f.MandateRef != nil {
		protocols.noteMandate(e, f)
	}
	if f.Kind == fact.KindDecision && n == novel {
		e.admissions.checkAdmissionDecision(f)
		e.approvals.checkIgnoredApproval(f)
	}
	if f.RequestFlags != 0 {
		e.admissions.recordFlaggedRequest(f)
	}
	if f.ReceiptDecisionID != "" {
		e.admissions.recordNamedDecision(f)
	}
	if track := rowOf(f.Protocol).track; track != nil {
		track(e, f, n)
	} else {
		e.findings.reportEventFindings(nil, f)
	}
}

// advanceTimers advances time to t: deadlines up to t fire, and sessions that have been
// idle for too long are forgotten. It does nothing more before the next timer. Sessions
// are ordered by their last activity, so that the next timer of all of them is that of
// the first: a method that moves a session to the front must also set its last activity.
// Otherwise an engine that goes on from a snapshot would forget sessions at another time.
func (e *engine) advanceTimers(t time.Time) {
	if e.opts.fromRecording {
		e.timers.AdvanceToRecorded(t)
	} else {
		e.timers.AdvanceTo(t)
	}
	if e.timers.anyDue() {
		e.expireCallDeadlines()
		e.trackers.expireProtocolSessions()
		e.expireSessions()
	}
	protocols.expire(e)
}

// expireCallDeadlines abandons the calls with deadlines that have come.
func (e *engine) expireCallDeadlines() {
	for {
		c, due := e.timers.popDueCall()
		if !due {
			return
		}
		e.abandonCall(c, closedByDeadline, &fact.Fact{At: c.deadline})
	}
}

// expireSessions forgets the sessions that have been idle for too long.
func (e *engine) expireSessions() {
	for s := e.calls.popIdle(); s != nil; s = e.calls.popIdle() {
		e.calls.forgetSession(s)
	}
}

// maxReemittedCalls bounds the calls of a session that are emitted again when its parent
// becomes known, or better known, after they ended.
const maxReemittedCalls = 64

// hasSession implements sessionRegister.
func (e *engine) hasSession(key fact.SessionKey, hash uint32) bool {
	return e.calls.hasSession(key, hash)
}

// upgradeParentLink implements sessionRegister. The calls of the session that ended last
// are emitted again, in the order in which they ended: at most once for each rank, of
// which there are five. The record of how an open call ends will name the parent anyway.
func (e *engine) upgradeParentLink(key fact.SessionKey, rank int8) {
	s := e.calls.find(key)
	if s == nil || rank <= s.parentLinkRank {
		return
	}
	s.parentLinkRank = rank
	for _, c := range s.closed[max(0, len(s.closed)-maxReemittedCalls):] {
		e.findings.emitCall(c.expand())
	}
}

// timers are event time and what time alone brings about: the deadlines of calls, and
// when the next timer can fire.
type timers struct {
	opts *engineOptions `snapshot:"-"` // given anew
	eventtime.Clock
	callDeadlines deadlines
	nextTimer     time.Time `snapshot:"-"` // no timer fires before it; the first message after a restart looks at all
}

// clock is the time that all parts share.
func (t *timers) clock() *eventtime.Clock { return &t.Clock }

// anyDue reports whether a timer may be due.
func (t *timers) anyDue() bool { return !t.Now().Before(t.nextTimer) }

// wakeAt notes that a timer may fire at a time.
func (t *timers) wakeAt(at time.Time) { t.nextTimer = earlierTime(t.nextTimer, at) }

// popDueCall gives the next call with a deadline that has come. When there is none, the next
// timer is set to the deadline after it.
func (t *timers) popDueCall() (*call, bool) {
	if c, due := t.callDeadlines.popDue(t.Now()); due {
		return c, true
	}
	t.nextTimer = t.Now().Add(eventtime.SessionIdle)
	if next, found := t.callDeadlines.next(); found {
		t.wakeAt(next.at)
	}
	return nil, false
}

// nextDeadline is the next deadline of a call.
func (t *timers) nextDeadline() (time.Time, bool) {
	d, found := t.callDeadlines.next()
	return d.at, found
}

// openCalls are the calls that have a deadline, in no particular order.
func (t *timers) openCalls() iter.Seq[*call] {
	return func(yield func(*call) bool) {
		for _, d := range t.callDeadlines {
			if !d.isStale() && !yield(d.call) {
				return
			}
		}
	}
}

// extendDeadline moves a call's deadline after one more message of it. open is how many
// calls are open.
func (t *timers) extendDeadline(c *call, f *fact.Fact, open int) {
	if !c.isOpen() {
		return
	}
	at := t.Now().Add(max(t.opts.MissingAfter, 2*min(f.ExpectedDuration, fact.MaxExpectedDuration)))
	at = t.approvalDeadline(at, f.Approval)
	if f.Decision != nil {
		at = t.approvalDeadline(at, f.Decision.Approval)
	}
	t.callDeadlines.set(c, at)
	t.nextTimer = earlierTime(t.nextTimer, at)
	if len(t.callDeadlines) > 2*open+64 {
		t.dropStaleDeadlines()
	}
}

// approvalDeadline is a deadline that leaves an approval its time.
func (t *timers) approvalDeadline(at time.Time, a *fact.Approval) time.Time {
	if a == nil || a.ExpiresAt.IsZero() {
		return at
	}
	end := t.FromBrokerTime(a.ExpiresAt)
	if limit := t.Now().Add(maxApprovalWait); end.After(limit) {
		return laterTime(at, limit)
	}
	return laterTime(at, end.Add(t.opts.MissingAfter))
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// dropStaleDeadlines drops stale deadlines; there may be many when one call is asked for
// again and again.
func (t *timers) dropStaleDeadlines() {
	kept := t.callDeadlines[:0]
	for _, d := range t.callDeadlines {
		if !d.isStale() {
			kept = append(kept, d)
		}
	}
	clear(t.callDeadlines[len(kept):])
	t.callDeadlines = kept
	t.callDeadlines.init()
}

// deadline is when a call counts as abandoned. A deadline that is no longer the
// call's own is stale.
type deadline struct {
	at   time.Time
	call *call
}

func (d deadline) isStale() bool { return !d.call.isOpen() || !d.call.deadline.Equal(d.at) }

// deadlines is a heap: the next deadline first, among equals the older call. No
// two are equal in both, so that the order in which they come out does not depend
// on how they lie in it.
type deadlines []deadline

func (d deadlines) less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].call.order < d[j].call.order
	}
	return d[i].at.Before(d[j].at)
}

func (d deadlines) siftUp(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !d.less(i, parent) {
			return
		}
		d[i], d[parent] = d[parent], d[i]
		i = parent
	}
}

func (d deadlines) siftDown(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(d); child++ {
			if d.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		d[i], d[least] = d[least], d[i]
		i = least
	}
}

func (d deadlines) init() {
	for i := len(d)/2 - 1; i >= 0; i-- {
		d.siftDown(i)
	}
}

// pop takes the first one away.
func (d *deadlines) pop() {
	list := *d
	last := len(list) - 1
	list[0] = list[last]
	list[last] = deadline{}
	*d = list[:last]
	(*d).siftDown(0)
}

// next is the next deadline that counts; it drops stale ones on the way.
func (d *deadlines) next() (deadline, bool) {
	for len(*d) > 0 {
		if top := (*d)[0]; !top.isStale() {
			return top, true
		}
		d.pop()
	}
	return deadline{}, false
}

// popDue takes the next deadline if it has been reached.
func (d *deadlines) popDue(now time.Time) (*call, bool) {
	top, ok := d.next()
	if !ok || now.Before(top.at) {
		return nil, false
	}
	d.pop()
	return top.call, true
}

// set gives a call a deadline; it never brings one forward.
func (d *deadlines) set(c *call, at time.Time) {
	if !at.After(c.deadline) {
		return
	}
	c.deadline = at
	*d = append(*d, deadline{at: at, call: c})
	d.siftUp(len(*d) - 1)
}

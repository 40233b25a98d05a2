package correlation

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// calls holds the sessions and their calls: open calls, and closed calls for late events.
// Options bounds them. maxTombstones, maxDenials and maxErasures bound what is kept of forgotten
// sessions and calls.
type calls struct {
	opts          *engineOptions `snapshot:"-"` // not part of a snapshot
	sessions      *tables.LRU[fact.SourceSession, *session]
	tombstones    *tables.Shared[fact.SourceSession, sessionTombstone]
	denials       *tables.LRU[fact.Sum, *denial]      // of forgotten calls
	erasures      *tables.Shared[fact.Sum, time.Time] // when a session's messages were erased, by its token
	lastCallOrder uint64                              // the order of the call opened last
	counts        callCounts
	dirtyCalls    []*call                      `snapshot:"-"` // calls that may be closed and whose details are expanded
	codec         snapshot.ValueCodec[details] `snapshot:"-"`

	timers   *timers   `snapshot:"-"` // another part, as is the next
	findings *findings `snapshot:"-"`
}

// sessionTombstone is kept of a forgotten session.
type sessionTombstone struct {
	occurrence    int // the highest one
	lostOpenCalls int // see session
}

// callCounts are counts over all sessions.
type callCounts struct {
	open      int // open calls
	calls     int // open and remembered calls
	ids       int // tool call ids with counted occurrences
	argsBytes int // bytes of kept arguments and differences
}

func newCalls(o *engineOptions, t *timers, fs *findings) *calls {
	return &calls{
		opts: o, timers: t, findings: fs,
		sessions:   tables.NewLRU[fact.SourceSession, *session](),
		tombstones: tables.NewShared[fact.SourceSession, sessionTombstone](maxTombstones),
		denials:    tables.NewLRU[fact.Sum, *denial](),
		erasures:   tables.NewShared[fact.Sum, time.Time](maxErasures),
	}
}

// find returns a session, nil if it is unknown. The session's last activity does not change.
func (cs *calls) find(key fact.SourceSession) *session {
	s, _ := cs.sessions.Peek(key)
	return s
}

// hasSession reports whether a session is known.
func (cs *calls) hasSession(key fact.SourceSession) bool {
	_, known := cs.sessions.Peek(key)
	return known
}

// hasAny reports whether isOne holds for a known session.
func (cs *calls) hasAny(isOne func(fact.SourceSession) bool) bool {
	return slices.ContainsFunc(cs.sessions.All(), func(s *session) bool { return isOne(s.Key) })
}

// touch returns a session and sets its last activity; nil if it is unknown.
func (cs *calls) touch(key fact.SourceSession) *session {
	s, known := cs.sessions.Get(key)
	if !known {
		return nil
	}
	s.lastActivity = cs.timers.CurrentActivity()
	return s
}

// active is touch for the session of a fact.
func (cs *calls) active(f *fact.Fact) *session {
	s, known := cs.sessions.Get(f.Key)
	if !known {
		return nil
	}
	s.lastActivity = cs.timers.CurrentActivity()
	return s
}

// isFull reports whether a new session needs another one to be forgotten.
func (cs *calls) isFull() bool { return cs.sessions.Len() >= cs.opts.MaxSessions }

// exceeds reports whether there are more calls, or more ids, than Options permits.
func (cs *calls) exceeds(by tables.Measure) bool {
	if by == tables.ByIDs {
		return cs.counts.ids > cs.opts.MaxIDs
	}
	return cs.counts.calls > cs.opts.MaxCalls
}

// noteErasure records that the messages of sessions are erased. They may have announced calls whose
// ends are yet to come.
func (cs *calls) noteErasure(e events.Erasure, at time.Time) {
	if e.State != events.ErasureBegun {
		return
	}
	for _, name := range e.Sessions {
		cs.erasures.Put(fact.TokenOf(e.Tenant), fact.SumOf(fact.TokenOf(name)), at)
	}
}

// wasErased reports whether a session was erased in the day before a time.
func (cs *calls) wasErased(key fact.SourceSession, now time.Time) bool {
	at, erased := cs.erasures.Get(key.Tenant, fact.SumOf(key.Session))
	return erased && now.Before(at.Add(eventtime.SessionIdle))
}

// addSession adds a session. rank is the rank of its parent link.
func (cs *calls) addSession(o *fact.Origin, rank int8) *session {
	d, _ := cs.tombstones.Get(o.Key.Tenant, o.Key)
	s := &session{
		calls: cs, Origin: o, parentLinkRank: rank, lastActivity: cs.timers.CurrentActivity(),
		occurrenceFloor: int32(d.occurrence), lostOpenCalls: d.lostOpenCalls,
	}
	cs.sessions.Add(s)
	return s
}

// maxSpared bounds the sessions with open calls that surplus passes over for one without.
const maxSpared = 64

// surplus is the session to forget for another one, which stays; nil if there is none. See
// tables.LRU.Surplus. The publisher's sessions with open calls are passed over, and then count
// as active: the ends of their calls are yet to come.
func (cs *calls) surplus(by tables.Measure, stays fact.SourceSession) *session {
	var first *session
	for range maxSpared {
		s, found := cs.sessions.Surplus(by, stays.Publisher().TableKey(), stays)
		if !found || first != nil && s.Owner() != first.Owner() {
			break
		}
		if len(s.open) == 0 {
			return s
		}
		first = cmp.Or(first, s)
		cs.touch(s.Key)
	}
	return first
}

// popIdle returns the next session that has been idle for too long, nil if there is none. A
// session with open calls stays; it is looked at again after another day.
func (cs *calls) popIdle() *session {
	for {
		s, found := cs.sessions.Oldest()
		if !found {
			return nil
		}
		if until, idle := cs.timers.CheckIdle(s.lastActivity, eventtime.SessionIdle); !idle {
			cs.timers.wakeAt(until)
			return nil
		}
		if len(s.open) == 0 {
			return s
		}
		cs.touch(s.Key)
	}
}

// nextIdle lowers next to the time when the next session may have been idle for too long.
func (cs *calls) nextIdle(next *eventtime.Earliest) {
	if s, found := cs.sessions.Oldest(); found {
		at, _ := cs.timers.CheckIdle(s.lastActivity, eventtime.SessionIdle)
		next.KeepEarlier(at)
	}
}

// addOpen adds a new call to its session and its group.
func (cs *calls) addOpen(c *call) {
	c.state = events.CallOpen
	c.group.calls = append(c.group.calls, c)
	c.session.open = append(c.session.open, c)
	cs.counts.open++
}

// addOrphan adds the call of a completion that no announcement preceded.
func (cs *calls) addOrphan(s *session, f *fact.Fact) *call {
	c := cs.newOccurrence(s, f)
	c.group.calls = append(c.group.calls, c)
	c.state, c.closeReason = events.CallOrphaned, closedByPost
	c.recordCompletion(f, false)
	c.dropExecutedText()
	s.moveToClosed(c)
	return c
}

// rebuild makes the shares of the publishers, and the timers' deadlines.
func (cs *calls) rebuild() {
	for _, s := range cs.sessions.All() {
		cs.sessions.Count(s.share, tables.ByCalls, len(s.open)+len(s.closed))
		cs.sessions.Count(s.share, tables.ByIDs, s.groups.len())
		for _, c := range s.open {
			cs.timers.restoreDeadline(c)
			cs.sessions.Count(s.share, tables.ByArgsBytes, len(c.args.Canonical)+c.differencesBytes)
		}
		for _, c := range s.closed {
			cs.sessions.Count(s.share, tables.ByArgsBytes, c.differencesBytes)
		}
	}
}

// held returns how many sessions, open calls, calls and ids are remembered, and how many bytes
// of arguments.
func (cs *calls) held() (sessions, open, calls, ids, argsBytes int) {
	n := &cs.counts
	return cs.sessions.Len(), n.open, n.calls, n.ids, n.argsBytes
}

// openCount is how many calls are open.
func (cs *calls) openCount() int { return cs.counts.open }

// snapshotSize estimates the bytes that calls and sessions take in a snapshot.
func (cs *calls) snapshotSize() int {
	return cs.counts.calls*callSize + cs.sessions.Len()*sessionSize
}

// forgetSession forgets a session. lost is how many open calls it had until now.
func (cs *calls) forgetSession(s *session, lost int) {
	cs.tombstones.Put(s.Key.Tenant, s.Key, sessionTombstone{s.highestOccurrence(), lost + s.lostOpenCalls})
	for _, group := range s.groups.list {
		if n := len(group.calls); n > 0 {
			cs.keepDenial(group.calls[n-1])
		}
	}
	cs.countCalls(s, -len(s.closed))
	for _, c := range s.closed {
		cs.releaseCallDifferences(c)
	}
	cs.countIDs(s, -s.groups.len())
	cs.sessions.Remove(s.Key)
}

// countCalls and countIDs change the counts of all sessions and of the session's publisher.
func (cs *calls) countCalls(s *session, n int) {
	cs.counts.calls += n
	cs.sessions.Count(s.share, tables.ByCalls, n)
}

func (cs *calls) countIDs(s *session, n int) {
	cs.counts.ids += n
	cs.sessions.Count(s.share, tables.ByIDs, n)
}

// hasRoomForArgs reports whether a session may keep so many more bytes. A tenant keeps at most
// as many as it leaves free of Options.MaxArgsBytes: others find room, however much one has.
func (cs *calls) hasRoomForArgs(s *session, size int) bool {
	free := cs.opts.MaxArgsBytes - cs.counts.argsBytes - size
	return s.share.OfTenant(tables.ByArgsBytes)+size <= free
}

// countArgsBytes changes the count of all sessions and of the session's publisher.
func (cs *calls) countArgsBytes(s *session, n int) {
	cs.counts.argsBytes += n
	cs.sessions.Count(s.share, tables.ByArgsBytes, n)
}

// keepCallArgs counts the arguments of an open call, and drops those of a closed one, or if there
// is no room for them. releaseCallArgs frees the bytes.
func (cs *calls) keepCallArgs(c *call) {
	size := len(c.args.Canonical)
	if !c.isOpen() || size > maxArgsPerCall || !cs.hasRoomForArgs(c.session, size) {
		c.args.Canonical = nil
		return
	}
	cs.countArgsBytes(c.session, size)
}

func (cs *calls) releaseCallArgs(c *call) {
	cs.countArgsBytes(c.session, -len(c.args.Canonical))
	c.args.Canonical = nil
}

// newOccurrence makes the next call of a group. The caller adds it to the open or closed
// calls. If admission is asked anew, no denial counts that was kept of an earlier call.
func (cs *calls) newOccurrence(s *session, f *fact.Fact) *call {
	if key, known := denialKey(f.Key, f.CallKey, &f.Args); known && (f.Kind == fact.KindRequest || f.Kind == fact.KindDecision) {
		cs.denials.Remove(key)
	}
	group := s.ensureGroup(f)
	group.count++
	cs.lastCallOrder++
	cs.countCalls(s, 1)
	c := &call{session: s, group: group, occurrence: group.count, order: cs.lastCallOrder, details: new(details)}
	if c.occurrence == 1 {
		c.cachedIDSum = f.FirstCallSum
	}
	return c
}

// closeCall closes a call, or changes how it was closed.
func (cs *calls) closeCall(c *call, state events.CallState, why closeReason) {
	wasOpen := c.isOpen()
	c.session.sawDenial = c.session.sawDenial || why == closedByStop
	c.state, c.closeReason = state, why
	if wasOpen {
		cs.counts.open--
		cs.releaseCallArgs(c)
		c.session.moveToClosed(c)
	}
}

// reopenCall opens a denied call that begins all the same: its completion must come.
func (cs *calls) reopenCall(c *call) {
	s := c.session
	s.closed, s.open = removeCall(s.closed, c), append(s.open, c)
	c.state, c.closeReason, c.deadline = events.CallOpen, notClosed, time.Time{}
	c.summary, c.compacted = callSummary{}, ""
	cs.counts.open++
}

// A denied call may be forgotten before it runs: its session made room, was idle, or closed
// many calls since. Its denial is kept in a small table, so that its execution is still found
// to be denied.

// maxDenials bounds the denials of forgotten calls, over all tenants (about 310 B each).
// Tenants share the table as they share the table of sessions.
const maxDenials = 32_768

// denial is the denial of a forgotten call that never ran.
type denial struct {
	key        fact.Sum
	by         fact.PublisherKey
	occurrence int
	decision   string // as shown; "" if only its publisher's events say that it was denied
	seq        uint64 // of the decision, or of the event that claims the denial
	at         time.Time
	argsSum    fact.Sum256 // of its arguments
	hasArgs    bool        // argsSum tells them from others
	records    recordCounts
}

func (d *denial) ID() fact.Sum { return d.key }

func (d *denial) Owner() tables.PublisherKey { return d.by.TableKey() }

func (d *denial) Holds(*tables.Share) {}

// denialKey identifies the denial of a call. A call without an id is known by its arguments; known
// is false if those are not.
func denialKey(k fact.SourceSession, s fact.CallKey, a *fact.Arguments) (key fact.Sum, known bool) {
	if s.ID != "" {
		return fact.SumOf("denial", k.Tenant, k.Source, k.Session, s.ID, s.Tool), true
	}
	return fact.SumOf("denial", k.Tenant, k.Source, k.Session, s.ID, s.Tool, string(a.PlainSum[:])), a.Known
}

// keepDenial keeps the denial of a call that is about to be forgotten.
func (cs *calls) keepDenial(c *call) {
	if !c.closedByRefusal() || c.hasWeakScope() && c.group.key.ID == "" {
		return
	}
	verdict := c.expand().directVerdict()
	key, known := denialKey(c.session.Key, c.group.key, &c.args)
	if verdict.verdict != events.Deny || !known {
		return
	}
	d := &denial{
		key: key, by: c.session.Key.Publisher(), occurrence: c.occurrence, seq: c.verdictClaim.Seq, records: c.recordCounts,
		argsSum: c.args.PlainSum, hasArgs: c.args.Known && (c.group.key.ID == "" || len(c.args.RedactedPaths) == 0),
	}
	if verdict.recorded != nil {
		d.decision, d.seq, d.at = verdict.recorded.ID, verdict.recorded.Seq, verdict.recorded.At
	}
	cs.denials.Remove(d.key)
	if cs.denials.Len() >= maxDenials {
		if old, found := cs.denials.Surplus(tables.ByPlaces, d.Owner(), d.key); found {
			cs.denials.Remove(old.key)
		}
	}
	cs.denials.Add(d)
}

// reopenDenied returns the denied call that an event announces or reports as run, if its denial was
// kept; else nil. The call becomes one of its session again, under the occurrence that was
// denied.
func (cs *calls) reopenDenied(s *session, f *fact.Fact) *call {
	if cs.denials.Len() == 0 {
		return nil
	}
	key, known := denialKey(f.Key, f.CallKey, &f.Args)
	d, kept := cs.denials.Peek(key)
	if !known || !kept {
		return nil
	}
	cs.denials.Remove(d.key)
	c := cs.newOccurrence(s, f)
	c.group.count--
	c.group.calls = append(c.group.calls, c)
	c.occurrence, c.cachedIDSum = d.occurrence, fact.Sum{}
	c.state, c.closeReason = events.CallDenied, closedByDeny
	c.protocol, c.tool, c.id, c.agent = f.Protocol, f.Tool, f.CallID, f.Agent
	c.args, c.recordCounts = fact.Arguments{Known: d.hasArgs, PlainSum: d.argsSum}, d.records
	if d.decision != "" {
		c.decisions = append(c.decisions, fact.RecordedVerdict{ID: d.decision, Seq: d.seq, At: d.at, Verdict: events.Deny})
		c.timeline = append(c.timeline, newTimelineEntry(stepDecided, d.seq, d.at, "", f.Protocol))
		s.linkDecision(c, d.decision)
	} else {
		c.verdictClaim = fact.VerdictClaim{Verdict: events.Deny, Seq: d.seq}
	}
	s.moveToClosed(c)
	return c
}

// linkRetry links a call with the attempt before it, and emits that one again if it is closed.
func (cs *calls) linkRetry(c, before *call) {
	if before == c || c.retryChain.from != (fact.Sum{}) || before.order >= c.order {
		return
	}
	c.retryChain.from, c.retryChain.attempt = before.idSum(), max(before.retryChain.attempt, 1)+1
	before.retryChain.to = c.idSum()
	cs.findings.emitCall(before)
}

// keepCallDifferences counts the call's differences like arguments while it is remembered, and
// drops them if there is no room for them.
func (cs *calls) keepCallDifferences(c *call) {
	size := 0
	for _, d := range c.differences {
		size += len(d.Pointer) + differenceSize
	}
	if !cs.hasRoomForArgs(c.session, size) {
		c.inputMatch = inputMatch{match: c.match, reason: events.MatchNotKept}
		return
	}
	c.differencesBytes = size
	cs.countArgsBytes(c.session, size)
}

// differenceSize is the size of a difference without its pointer's text.
const differenceSize = 32

func (cs *calls) releaseCallDifferences(c *call) {
	cs.countArgsBytes(c.session, -c.differencesBytes)
	if c.differencesBytes = 0; c.details != nil {
		c.differences = nil
	}
}

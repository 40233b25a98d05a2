package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
	"github.com/countersign-dev/countersign/events"
)

// calls are the sessions and their calls: open ones, and closed ones that are remembered
// for late events. Options bounds them; what is kept of forgotten ones is bounded by
// maxTombstones and maxDenials.
type calls struct {
	opts          *engineOptions `snapshot:"-"` // given anew
	sessions      *tables.LRU[fact.SourceSession, *session]
	tombstones    *tables.FIFO[fact.SourceSession, int] // the highest occurrence in forgotten sessions
	denials       *tables.LRU[fact.Sum, *denial]        // of calls that are forgotten
	lastCallOrder uint64                                // calls opened so far
	counts        callCounts
	dirtyCalls    []*call      `snapshot:"-"` // calls that may be over and have details that are not compacted
	codec         detailsCodec `snapshot:"-"` // of compacted calls

	// A restored snapshot reads the sessions before these parts, which refer to their calls.
	timers   *timers
	findings *findings
}

// callCounts is what all sessions hold together.
type callCounts struct {
	open      int // open calls
	calls     int // open calls and remembered ones
	ids       int // tool call ids with counted occurrences
	argsBytes int // bytes of arguments and differences
}

func newCalls(t *timers, fs *findings) *calls {
	return &calls{
		timers: t, findings: fs,
		sessions:   tables.NewLRU[fact.SourceSession, *session](),
		tombstones: tables.NewFIFO[fact.SourceSession, int](maxTombstones),
		denials:    tables.NewLRU[fact.Sum, *denial](),
	}
}

// find gives a session without noting that it is active, nil if it is not known.
func (cs *calls) find(key fact.SourceSession) *session {
	s, _ := cs.sessions.Peek(key)
	return s
}

// hasSession reports whether a session is known. hash is that of the key.
func (cs *calls) hasSession(key fact.SourceSession, hash uint32) bool {
	_, known := cs.sessions.PeekHashed(key, hash)
	return known
}

// touch gives a session and notes that it is active, nil if it is not known.
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
	s, known := cs.sessions.GetHashed(f.Key, f.OriginHashes().Session)
	if !known {
		return nil
	}
	s.lastActivity = cs.timers.CurrentActivity()
	return s
}

// isFull reports whether there is no room for one more session.
func (cs *calls) isFull() bool { return cs.sessions.Len() >= cs.opts.MaxSessions }

// exceeds reports whether there are more calls or ids than Options permits.
func (cs *calls) exceeds(by tables.Measure) bool {
	if by == tables.ByIDs {
		return cs.counts.ids > cs.opts.MaxIDs
	}
	return cs.counts.calls > cs.opts.MaxCalls
}

// addSession begins a session. rank is that of its parent link.
func (cs *calls) addSession(o *fact.Origin, rank int8) *session {
	floor, _ := cs.tombstones.Get(o.Key)
	s := &session{calls: cs, Origin: o, occurrenceFloor: int32(floor), parentLinkRank: rank, lastActivity: cs.timers.CurrentActivity()}
	cs.sessions.Add(s)
	return s
}

// surplus is the session to forget for something of another one, which stays; nil if
// there is none. See lru.surplus.
func (cs *calls) surplus(by tables.Measure, stays fact.SourceSession) *session {
	s, _ := cs.sessions.Surplus(by, stays.Publisher().Holder(), stays)
	return s
}

// popIdle gives the next session to forget because it has been idle for too long, nil if
// there is none. A session with open calls stays, and is looked at after another day.
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

// nextIdle is when the next session may have been idle for too long.
func (cs *calls) nextIdle(next *eventtime.Earliest) {
	if s, found := cs.sessions.Oldest(); found {
		at, _ := cs.timers.CheckIdle(s.lastActivity, eventtime.SessionIdle)
		next.KeepEarlier(at)
	}
}

// addOpen adds a new call to its session and its group.
func (cs *calls) addOpen(c *call) {
	c.group.calls = append(c.group.calls, c)
	c.session.open = append(c.session.open, c)
	cs.counts.open++
}

// recount counts for every publisher what its sessions remember, in a restored table:
// tables are read before what lies in them is.
func (cs *calls) recount() {
	for _, s := range cs.sessions.All() {
		cs.sessions.Count(s.share, tables.ByCalls, len(s.open)+len(s.closed))
		cs.sessions.Count(s.share, tables.ByIDs, s.groups.len())
	}
}

// held is how many sessions, open calls, calls and ids are remembered, and how many bytes
// of arguments.
func (cs *calls) held() (sessions, open, calls, ids, argsBytes int) {
	n := &cs.counts
	return cs.sessions.Len(), n.open, n.calls, n.ids, n.argsBytes
}

// callCount is how many calls are remembered, open ones included.
func (cs *calls) callCount() int { return cs.counts.calls }

// openCount is how many calls are open.
func (cs *calls) openCount() int { return cs.counts.open }

// snapshotSize is what the calls and sessions take in a snapshot, in bytes.
func (cs *calls) snapshotSize() int {
	return cs.counts.calls*callSize + cs.sessions.Len()*sessionSize
}

func (cs *calls) forgetSession(s *session) {
	cs.tombstones.Put(s.Key, s.highestOccurrence())
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

// countCalls and countIDs count what a session remembers, for all and for its
// publisher.
func (cs *calls) countCalls(s *session, n int) {
	cs.counts.calls += n
	cs.sessions.Count(s.share, tables.ByCalls, n)
}

func (cs *calls) countIDs(s *session, n int) {
	cs.counts.ids += n
	cs.sessions.Count(s.share, tables.ByIDs, n)
}

// keepCallArgs counts the arguments that are kept for a call, and drops them if
// there is no room; releaseArgs gives the room back.
func (cs *calls) keepCallArgs(c *call) {
	size := len(c.args.Canonical)
	if size > maxArgsPerCall || cs.counts.argsBytes+size > cs.opts.MaxArgsBytes {
		c.args.Canonical = nil
		return
	}
	cs.counts.argsBytes += size
}

func (cs *calls) releaseCallArgs(c *call) {
	cs.counts.argsBytes -= len(c.args.Canonical)
	c.args.Canonical = nil
}

// newOccurrence makes the next call of a group, neither open nor remembered yet.
func (cs *calls) newOccurrence(s *session, f *fact.Fact) *call {
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

// closeCall ends a call or changes how it ended.
func (cs *calls) closeCall(c *call, state events.CallState, why closeReason) {
	wasOpen := c.isOpen()
	c.session.sawDenial = c.session.sawDenial || why == closedByDeny || why == closedByStop
	c.state, c.closeReason = state, why
	if wasOpen {
		cs.counts.open--
		cs.releaseCallArgs(c)
		c.session.moveToClosed(c)
	}
}

// A call that was denied may be forgotten before it runs: its session had to make
// room, was idle for long, or closed very many calls since. What tells its execution
// from one without a verdict is kept apart, in little room.

// maxDenials bounds the denied calls that are forgotten but for their denial, over
// all tenants, which share the places as they share those of sessions (about 250 B
// each).
const maxDenials = 32_768

// denial is what is kept of a call that was denied and never ran.
type denial struct {
	key        fact.Sum
	by         fact.SourceKey
	occurrence int
	decision   string // as shown; "" if only its publisher's events say that it was denied
	seq        uint64 // of the decision, or of the event that says so
	at         time.Time
}

func (d *denial) ID() fact.Sum { return d.key }

func (d *denial) Owner() tables.Holder { return d.by.Holder() }

func (d *denial) Holds(*tables.Share) {}

func denialKey(k fact.SourceSession, s fact.CallKey) fact.Sum {
	return fact.SumOf("denial", k.Tenant, k.Source, k.Session, s.Id, s.Tool)
}

// keepDenial keeps the denial of a call that is about to be forgotten.
func (cs *calls) keepDenial(c *call) {
	if !c.closedByRefusal() || c.hasWeakScope() && c.group.key.Id == "" {
		return
	}
	verdict := c.expand().directVerdict()
	if verdict.verdict != events.Deny {
		return
	}
	d := &denial{key: denialKey(c.session.Key, c.group.key), by: c.session.Key.Publisher(), occurrence: c.occurrence, seq: c.verdictClaim.Seq}
	if verdict.recorded != nil {
		d.decision, d.seq, d.at = verdict.recorded.Id, verdict.recorded.Seq, verdict.recorded.At
	}
	cs.denials.Remove(d.key)
	if cs.denials.Len() >= maxDenials {
		if old, found := cs.denials.Surplus(tables.ByPlaces, d.Owner(), d.key); found {
			cs.denials.Remove(old.key)
		}
	}
	cs.denials.Add(d)
}

// recallDenied gives the denied call that a completion says ran, as far as its
// denial was kept; nil if there is none. It is a call of the session again, and ran
// under the occurrence that it was denied as.
func (cs *calls) reopenDenied(s *session, f *fact.Fact) *call {
	if f.Effect == fact.NoEffect || cs.denials.Len() == 0 {
		return nil
	}
	d, kept := cs.denials.Peek(denialKey(f.Key, f.CallKey))
	if !kept {
		return nil
	}
	cs.denials.Remove(d.key)
	c := cs.newOccurrence(s, f)
	c.group.count--
	c.group.calls = append(c.group.calls, c)
	c.occurrence, c.cachedIDSum = d.occurrence, fact.Sum{}
	c.state, c.closeReason = events.CallDenied, closedByDeny
	if d.decision != "" {
		c.decisions = append(c.decisions, fact.RecordedVerdict{Id: d.decision, Seq: d.seq, At: d.at, Verdict: events.Deny})
		s.linkDecision(c, d.decision)
	} else {
		c.verdictClaim = fact.VerdictClaim{Verdict: events.Deny, Seq: d.seq}
	}
	s.moveToClosed(c)
	return c
}

// linkRetry links a call with the attempt before it. That one is emitted again if
// it is over.
func (cs *calls) linkRetry(c, before *call) {
	if before == c || c.retryChain.from != (fact.Sum{}) || before.order >= c.order {
		return
	}
	c.retryChain.from, c.retryChain.attempt = before.idSum(), max(before.retryChain.attempt, 1)+1
	before.retryChain.to = c.idSum()
	cs.findings.emitCall(before)
}

// keepCallDifferences counts what a call's differences take for as long as it is
// remembered, and drops them if there is no room.
func (cs *calls) keepCallDifferences(c *call) {
	size := 0
	for _, d := range c.differences {
		size += len(d.Pointer) + differenceSize
	}
	if cs.counts.argsBytes+size > cs.opts.MaxArgsBytes {
		c.inputMatch = inputMatch{match: c.match, reason: events.MatchNotKept}
		return
	}
	c.differencesBytes = size
	cs.counts.argsBytes += size
}

// differenceSize is what a difference takes beside its pointer's text.
const differenceSize = 32

func (cs *calls) releaseCallDifferences(c *call) {
	cs.counts.argsBytes -= c.differencesBytes
	if c.differencesBytes = 0; c.details != nil {
		c.differences = nil
	}
}

package correlation

import (
	"cmp"
	"math/bits"
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

// compactIfMany compacts calls when there are enough for it to be fast; see compactBatch.
func (cs *calls) compactIfMany() {
	if len(cs.dirtyCalls) >= compactBatch {
		cs.compactCalls()
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
	for _, sl := range s.groups.list {
		if n := len(sl.calls); n > 0 {
			cs.keepDenial(sl.calls[n-1])
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
	sl := s.ensureGroup(f)
	sl.count++
	cs.lastCallOrder++
	cs.countCalls(s, 1)
	c := &call{session: s, group: sl, occurrence: sl.count, order: cs.lastCallOrder, details: new(details)}
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
	if !c.wasRefused() || c.hasWeakScope() && c.group.key.Id == "" {
		return
	}
	st := c.expand().directVerdict()
	if st.verdict != events.Deny {
		return
	}
	d := &denial{key: denialKey(c.session.Key, c.group.key), by: c.session.Key.Publisher(), occurrence: c.occurrence, seq: c.verdictClaim.Seq}
	if st.recorded != nil {
		d.decision, d.seq, d.at = st.recorded.Id, st.recorded.Seq, st.recorded.At
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
func (cs *calls) recallDenied(s *session, f *fact.Fact) *call {
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

// matchAnnouncement finds the call that a request, a decision or a pre event belongs to
// (architecture section 4); nil means that it opens a new occurrence.
func (s *session) matchAnnouncement(f *fact.Fact) *call {
	if c := s.callOfDecision(f.DecisionID); c != nil && c.group.key == f.CallKey && c.compareFact(f) != fact.ArgsDifferent {
		return c
	}
	sl := s.findGroup(f)
	if sl == nil {
		return nil
	}
	if c := matchOpenCall(sl, f); c != nil {
		return c
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return belongsToClosedCall(c, f) }); c != nil {
		return c
	}
	return findOvertakenCall(sl, f)
}

func matchOpenCall(sl *callGroup, f *fact.Fact) *call {
	for _, c := range sl.calls {
		if c.isOpen() && c.hasEvent(f.EventID) && belongsByEvent(c, f) {
			return c
		}
	}
	for _, c := range sl.calls {
		if c.isOpen() && c.compareFact(f) != fact.ArgsDifferent && belongsToOpenCall(c, f) {
			return c
		}
	}
	return nil
}

// belongsByEvent: one event id is one call, even where its contents differ, which
// is a finding of its own. Requests are judged one by one, so other arguments
// make another request of them.
func belongsByEvent(c *call, f *fact.Fact) bool {
	return f.Kind == fact.KindPre || c.compareFact(f) != fact.ArgsDifferent
}

// belongsToOpenCall reports whether a fact with the same tool and arguments belongs to an
// open call or is the next one. Under an id it belongs, asked again or not; but
// a protocol may invoke once under one id (onceUnderID). Without an id each kind comes once.
func belongsToOpenCall(c *call, f *fact.Fact) bool {
	switch f.Kind {
	case fact.KindPre:
		return !c.hasPre || (f.CallKey.Id != "" && (!rowOf(f.Protocol).onceUnderID || !c.announcedIn.has(f.Protocol)))
	case fact.KindRequest:
		return f.CallKey.Id != "" || !c.hasRequest
	default:
		return f.CallKey.Id != "" || len(c.decisions) == 0
	}
}

// belongsToClosedCall reports whether a fact only comes late: whatever the order, the
// parts of one call stay together.
func belongsToClosedCall(c *call, f *fact.Fact) bool {
	if c.state == events.CallOrphaned || c.compareFact(f) == fact.ArgsDifferent {
		return false
	}
	sameEvent := c.hasEvent(f.EventID)
	switch f.Kind {
	case fact.KindPre:
		return c.isOtherView(f) || sameEvent && c.preEvent != f.EventID || !c.hasPre && (c.wasRefused() || c.closeReason == closedByError || f.CallKey.Id != "" && c.endedBefore(f))
	case fact.KindRequest:
		return !c.hasRequest && (sameEvent || len(c.decisions) > 0 && !c.hasPre && f.EventID == "" || len(c.decisions) == 0 && f.CallKey.Id != "" && c.endedBefore(f))
	default:
		return len(c.decisions) == 0 && (sameEvent || f.EventID == "")
	}
}

// wasRefused reports whether the call was closed by a deny.
func (c *call) wasRefused() bool {
	return c.closeReason == closedByDeny || c.closeReason == closedByStop
}

// firstEvent is the event that announced the call.
func (x *details) firstEvent() string {
	return cmp.Or(x.preEvent, cmp.Or(x.requestEvent, x.decisionEvent()))
}

func (x *details) decisionEvent() string {
	for _, d := range x.decisions {
		if d.EventID != "" {
			return d.EventID
		}
	}
	return ""
}

// matchCompletion finds the call that a completion ends: the oldest opened occurrence under its
// id. Where one side has no id, or neither has, the one that the correlation id names,
// and only then the oldest of the tool.
func (s *session) matchCompletion(f *fact.Fact) (c *call, inferred bool) {
	if f.CallKey.Id == "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	if f.CallKey != (fact.CallKey{}) {
		if c := matchInGroup(s.findGroup(f), f); c != nil {
			return c, f.CallKey.Id == ""
		}
	}
	if f.RetriedKey.Id != "" {
		if c := matchInGroup(s.groups.get(f.RetriedKey, f.RetriedKey.Hash()), f); c != nil {
			return c, false
		}
	}
	if f.CallKey.Id != "" && !rowOf(f.Protocol).endsByCorrelation {
		return nil, false
	}
	if f.CallKey.Id != "" {
		if c := s.correlated(f); c != nil {
			return c, true
		}
	}
	return s.findOpen(func(c *call) bool { return c.mayEndBy(f) }), true
}

// mayEndBy reports whether an open call may be paired with a completion by its tool.
func (c *call) mayEndBy(f *fact.Fact) bool {
	return c.tool == f.Tool && f.Tool != "" && (f.CallKey.Id == "" || c.group.key.Id == "")
}

// correlated finds the call that the correlation id of a completion names: its
// announcement has the same id, or is the event so named. Of an id that several open calls
// have, the oldest is meant. A call that was closed without an end is meant if its
// event is named, or if every open call has another correlation id.
func (s *session) correlated(f *fact.Fact) *call {
	thread, event := f.LineageRefs.Thread(), f.LineageRefs.Correlation
	if thread.IsZero() {
		return nil
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread == thread }); c != nil {
		return c
	}
	if c := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.hasEvent(event) }); c != nil {
		return c
	}
	sl := s.groups.get(fact.CallKeyOf("", f.Tool), fact.CallKeyOf("", f.Tool).Hash())
	if sl == nil {
		return nil
	}
	only := s.findOpen(func(c *call) bool { return c.mayEndBy(f) && c.thread.IsZero() }) == nil
	return sl.latestClosed(func(c *call) bool {
		return c.awaitsCompletion() && (only && c.thread == thread || c.hasEvent(event))
	})
}

// matchInGroup finds the call of a group that a completion ends. Where the id was used
// for several tools, a call of the completion's own tool comes first.
func matchInGroup(sl *callGroup, f *fact.Fact) *call {
	if sl == nil {
		return nil
	}
	if c := sl.oldestOpenOf(f.Tool); c != nil {
		return preferDeniedCall(c, sl, f)
	}
	if c := sl.oldestOpen(); c != nil {
		if late := sl.latestClosed(func(o *call) bool { return o.awaitsCompletion() && o.tool == f.Tool && f.Tool != "" }); late != nil {
			return late
		}
		return preferDeniedCall(c, sl, f)
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return c.awaitsCompletion() && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	if c := sl.latestClosed((*call).awaitsCompletion); c != nil {
		return c
	}
	return sl.latestClosed(func(c *call) bool { return c.isDenied() && (f.CallKey.Id == "" || c.endedIn.has(f.Protocol)) })
}

// preferDeniedCall names the execution of a denied call as what it is: it must not
// hide behind an opened call of the same id with other arguments.
func preferDeniedCall(armed *call, sl *callGroup, f *fact.Fact) *call {
	if f.Effect == fact.NoEffect || armed.compareFact(f) != fact.ArgsDifferent {
		return armed
	}
	if c := sl.latestClosedLike(f, func(c *call) bool { return c.wasRefused() && !c.hasPost && c.compareFact(f) == fact.ArgsEqual }); c != nil {
		return c
	}
	return armed
}

// awaitsCompletion: closed without a Post event, which may still come.
func (c *call) awaitsCompletion() bool { return !c.hasPost && c.state != events.CallOrphaned }

// isDenied: denied, and completed nonetheless before. Under an id, what another
// protocol says of its end is the same completion: see repeated.
func (c *call) isDenied() bool { return c.effectiveVerdict().verdict == events.Deny }

// protocolSet says in which protocols something was seen.
//
// A publisher may tell of one call in several protocols: one calls it a hook,
// one a tool call, and the decision on it may have been made in a third. It is one
// call, and one record says all of it, if tenant, source, session and a
// tool_call_id that is not empty are the same, to the byte, and so is the tool
// where both name one; arguments must not contradict each other. It is never one
// call across tenants, publishers or sessions, nor by time, tool or arguments
// alone: what has no id is paired within its own protocol.
type protocolSet uint8

func protocolBit(name string) protocolSet {
	for i, known := range protocols {
		if name == known.Token {
			return 1 << i
		}
	}
	return 0
}

func (p protocolSet) has(name string) bool { return p&protocolBit(name) != 0 }

// names are the protocols, nil if there is but one.
func (p protocolSet) names() []string {
	if bits.OnesCount8(uint8(p)) < 2 {
		return nil
	}
	var list []string
	for i, known := range protocols {
		if p&(1<<i) != 0 {
			list = append(list, known.Token)
		}
	}
	return list
}

// protocolViews are the protocols in which a call was announced, ended, and heard of at
// all.
type protocolViews struct {
	announcedIn, endedIn, seenIn protocolSet
	maxEffect                    fact.Effect // the most that any of its ends says
}

func (x *details) recordProtocol(f *fact.Fact) {
	bit := protocolBit(f.Protocol)
	x.seenIn |= bit
	switch f.Kind {
	case fact.KindPre:
		x.announcedIn |= bit
	case fact.KindPost:
		x.endedIn |= bit
		x.maxEffect = max(x.maxEffect, f.Effect)
	}
}

// isOtherView reports whether an announcement that fits a call is the other
// protocol's of one that is over already.
func (x *details) isOtherView(f *fact.Fact) bool {
	return f.Kind == fact.KindPre && f.CallKey.Id != "" && x.hasPre && !x.announcedIn.has(f.Protocol)
}

// findRepeatedCompletion gives the call with a completion that is said again by one for which
// nothing is left: another content under the same event id, which is a finding
// already, or the other protocol's view of the same completion.
func (s *session) findRepeatedCompletion(f *fact.Fact) *call {
	sl := s.findGroup(f)
	if sl == nil || f.CallKey.Id == "" {
		return nil
	}
	return sl.latestClosed(func(c *call) bool {
		return c.hasPost && (c.postProtocol != f.Protocol || (c.postEvent == f.EventID && f.EventID != ""))
	})
}

// retryChain is a call's place among the attempts at the same thing.
type retryChain struct {
	from, to fact.Sum // of the attempt before and of the last one after; zero if there is none
	attempt  int32    // from 2; zero for the first one
}

// findRetriedCall finds the call that a new one tries again: the one that it names
// (AgentHook's retry.previous_tool_call_id), or the last one under its id with the
// same arguments, unless that was allowed or has no verdict.
func (s *session) findRetriedCall(f *fact.Fact) *call {
	if c := s.findNamedRetry(f); c != nil {
		return c
	}
	sl := s.findGroup(f)
	c := sl.latestClosedLike(f, func(c *call) bool { return c.state != events.CallOrphaned && c.compareFact(f) != fact.ArgsDifferent })
	if c == nil || (f.CallKey.Id == "" && c.compareFact(f) != fact.ArgsEqual) {
		return nil
	}
	if v := c.effectiveVerdict().verdict; v == "" || v == events.Allow {
		return nil
	}
	return c
}

// findNamedRetry is the last call under the id that a fact says it tries again.
func (s *session) findNamedRetry(f *fact.Fact) *call {
	if f.RetriedKey == (fact.CallKey{}) || f.RetriedKey == f.CallKey {
		return nil
	}
	if sl := s.groups.get(f.RetriedKey, f.RetriedKey.Hash()); sl != nil && len(sl.calls) > 0 {
		return sl.calls[len(sl.calls)-1].expand()
	}
	return nil
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

func callIDOf(s fact.Sum) string {
	if s.IsZero() {
		return ""
	}
	return hexID(callIDPrefix, s)
}

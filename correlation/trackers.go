package correlation

import (
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// trackers follow sessions as their protocol orders them (protocolRow.sessions), beside
// the calls: which event may follow which, which question was asked, which output is
// complete. Their bounds are Options.MaxSessions and storedItemLimit.
type trackers struct {
	opts     *engineOptions `snapshot:"-"` // given anew
	timers   *timers
	findings *findings

	sessions        *tables.LRU[protocolSessionKey, *protocolSession]
	tombstones      *tables.FIFO[protocolSessionKey, trackerTombstone]
	storedItems     int // of all sessions; at most the next
	storedItemLimit int
	runningSessions map[fact.SourceKey]int // sessions with their start on the log, and not their end
}

func newTrackers(t *timers, fs *findings) *trackers {
	return &trackers{
		timers: t, findings: fs, storedItemLimit: maxStoredItems,
		sessions:        tables.NewLRU[protocolSessionKey, *protocolSession](),
		tombstones:      tables.NewFIFO[protocolSessionKey, trackerTombstone](maxTombstones),
		runningSessions: map[fact.SourceKey]int{},
	}
}

// find gives a session without noting that it is active, nil if it is not followed.
func (ts *trackers) find(key fact.SourceSession, protocol string) *protocolSession {
	w, _ := ts.sessions.Peek(protocolSessionKey{key, protocol})
	return w
}

// touch gives a session and notes that it is active, nil if it is not followed.
func (ts *trackers) touch(key protocolSessionKey) *protocolSession {
	w, followed := ts.sessions.Get(key)
	if !followed {
		return nil
	}
	w.lastActivity = ts.timers.CurrentActivity()
	return w
}

// active gives the session of a fact and notes that it is active, nil if it is not
// followed.
func (ts *trackers) active(f *fact.Fact) *protocolSession {
	w, followed := ts.sessions.GetHashed(protocolSessionKey{f.Key, f.Protocol}, f.ProtocolSessionHash())
	if !followed {
		return nil
	}
	w.lastActivity = ts.timers.CurrentActivity()
	return w
}

// follow begins to follow the session of a fact, in the place of another one if there is
// no room.
func (ts *trackers) follow(f *fact.Fact, o *fact.Origin) *protocolSession {
	key := protocolSessionKey{f.Key, f.Protocol}
	if ts.sessions.Len() >= ts.opts.MaxSessions {
		if old, found := ts.sessions.Surplus(tables.ByPlaces, key.Publisher().Holder(), key); found {
			ts.forgetProtocolSession(old, trackerTombstone{})
		}
	}
	d, _ := ts.tombstones.Get(key)
	w := &protocolSession{origin: o, protocol: f.Protocol, lastActivity: ts.timers.CurrentActivity()}
	rowOf(f.Protocol).sessions.restore(ts, w, f, d)
	ts.sessions.Add(w)
	return w
}

// count is how many sessions are followed.
func (ts *trackers) count() int { return ts.sessions.Len() }

// hasRunning reports whether the start of a session is on the log, and its end is not.
func (ts *trackers) hasRunning() bool { return len(ts.runningSessions) > 0 }

// countRunningSessions keeps how many AAEP sessions of a publisher are running.
func (ts *trackers) countRunningSessions(w *protocolSession, before, after bool) {
	k := fact.SourceKey{Tenant: w.origin.Key.Tenant, Source: w.origin.Key.Source}
	switch {
	case after && !before:
		ts.runningSessions[k]++
	case before && !after:
		if ts.runningSessions[k]--; ts.runningSessions[k] <= 0 {
			delete(ts.runningSessions, k)
		}
	}
}

// recount counts for every publisher what its sessions remember, in a restored table.
func (ts *trackers) recount() {
	for _, w := range ts.sessions.All() {
		ts.sessions.Count(w.share, tables.ByWeight, w.storedItems)
	}
}

// protocolSessionKey is one session in one protocol.
type protocolSessionKey struct {
	fact.SourceSession
	protocol string
}

func (k protocolSessionKey) Hash() uint32 {
	return fact.ProtocolSessionHash(k.SourceSession.Hash(), k.protocol)
}

// protocolSession is a session that is followed.
type protocolSession struct {
	origin       *fact.Origin // shared, and never changed
	protocol     string
	lastActivity eventtime.Activity
	protocolState
	givenHints  map[string]bool // hints of schemas that were given
	storedItems int
	share       *tables.Share `snapshot:"-"` // its publisher in the table of flows
}

func (w *protocolSession) ID() protocolSessionKey {
	return protocolSessionKey{w.origin.Key, w.protocol}
}

func (w *protocolSession) Owner() tables.Holder { return w.origin.Key.Publisher().Holder() }

func (w *protocolSession) Holds(h *tables.Share) { w.share = h }

// trackedSessions is how a protocol's sessions are followed. All of it is set.
type trackedSessions struct {
	restore     func(ts *trackers, w *protocolSession, f *fact.Fact, d trackerTombstone) // begins with what was kept
	storedItems func(w *protocolSession) int
	expire      func(ts *trackers, w *protocolSession) *catalogue.Finding // it has been idle for too long; what that proves, if anything
	tombstone   func(ts *trackers, w *protocolSession, d *trackerTombstone)
}

// accountStoredItems counts what a session remembers, and forgets others if all together remember
// too much: see surplus.
func (ts *trackers) accountStoredItems(w *protocolSession) {
	before := w.storedItems
	w.storedItems = rowOf(w.protocol).sessions.storedItems(w)
	ts.storedItems += w.storedItems - before
	ts.sessions.Count(w.share, tables.ByWeight, w.storedItems-before)
	for ts.storedItems > ts.storedItemLimit {
		old, found := ts.sessions.Surplus(tables.ByWeight, w.Owner(), w.ID())
		if !found {
			return
		}
		ts.forgetProtocolSession(old, trackerTombstone{})
	}
}

// trackerTombstone is what is kept of a session that is not followed any more.
type trackerTombstone struct {
	protocolTombstone
}

// expireProtocolSessions forgets the sessions that have been idle for too long.
func (ts *trackers) expireProtocolSessions() {
	for {
		w, ok := ts.sessions.Oldest()
		if !ok {
			return
		}
		if until, idle := ts.timers.CheckIdle(w.lastActivity, eventtime.SessionIdle); !idle {
			ts.timers.wakeAt(until)
			return
		}
		d := trackerTombstone{}
		d.silence = rowOf(w.protocol).sessions.expire(ts, w)
		ts.forgetProtocolSession(w, d)
	}
}

// nextProtocolSessionIdle is when the next session may have been idle for long.
func (ts *trackers) nextProtocolSessionIdle(next *eventtime.Earliest) {
	if w, ok := ts.sessions.Oldest(); ok {
		at, _ := ts.timers.CheckIdle(w.lastActivity, eventtime.SessionIdle)
		next.KeepEarlier(at)
	}
}

func (ts *trackers) forgetProtocolSession(w *protocolSession, d trackerTombstone) {
	rowOf(w.protocol).sessions.tombstone(ts, w, &d)
	ts.storedItems -= w.storedItems
	ts.sessions.Count(w.share, tables.ByWeight, -w.storedItems)
	ts.tombstones.Put(w.ID(), d)
	ts.sessions.Remove(w.ID())
}

package correlation

import (
	"slices"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
	"github.com/countersign-dev/countersign/correlation/internal/tables"
)

// trackers track sessions by the rules of their protocol (protocolRow.sessions): the order of
// events, questions, outputs. They know no calls. Options.MaxSessions and storedItemLimit
// bound them.
type trackers struct {
	opts     *engineOptions `snapshot:"-"` // not part of a snapshot
	timers   *timers        `snapshot:"-"` // another part, as is the next
	findings *findings      `snapshot:"-"`

	sessions        *tables.LRU[protocolSessionKey, *protocolSession]
	tombstones      *tables.Shared[protocolSessionKey, protocolTombstone]
	storedItems     int // of all sessions; at most storedItemLimit
	storedItemLimit int
	runningSessions map[fact.PublisherKey]int // sessions that started on the log and did not end
}

func newTrackers(o *engineOptions, t *timers, fs *findings) *trackers {
	return &trackers{
		opts: o, timers: t, findings: fs, storedItemLimit: maxStoredItems,
		sessions:        tables.NewLRU[protocolSessionKey, *protocolSession](),
		tombstones:      tables.NewShared[protocolSessionKey, protocolTombstone](maxTombstones),
		runningSessions: map[fact.PublisherKey]int{},
	}
}

// find returns a session, nil if it is not tracked. The session's last activity does not
// change.
func (ts *trackers) find(key fact.SourceSession, protocol string) *protocolSession {
	w, _ := ts.sessions.Peek(protocolSessionKey{key, protocol})
	return w
}

// hasAny reports whether one of the tracked sessions is one.
func (ts *trackers) hasAny(isOne func(fact.SourceSession) bool) bool {
	return slices.ContainsFunc(ts.sessions.All(), func(w *protocolSession) bool { return isOne(w.origin.Key) })
}

// touch returns a session and sets its last activity; nil if it is not tracked.
func (ts *trackers) touch(key protocolSessionKey) *protocolSession {
	w, tracked := ts.sessions.Get(key)
	if !tracked {
		return nil
	}
	w.lastActivity = ts.timers.CurrentActivity()
	return w
}

// active is touch for the session of a fact.
func (ts *trackers) active(f *fact.Fact) *protocolSession {
	w, tracked := ts.sessions.Get(protocolSessionKey{f.Key, f.Protocol})
	if !tracked {
		return nil
	}
	w.lastActivity = ts.timers.CurrentActivity()
	return w
}

// beginTracking begins to track the session of a fact. If the table is full, another session is
// forgotten.
func (ts *trackers) beginTracking(f *fact.Fact, o *fact.Origin) *protocolSession {
	key := protocolSessionKey{f.Key, f.Protocol}
	if ts.sessions.Len() >= ts.opts.MaxSessions {
		if old, found := ts.sessions.Surplus(tables.ByPlaces, key.Publisher().TableKey(), key); found {
			ts.forgetProtocolSession(old, protocolTombstone{})
		}
	}
	d, _ := ts.tombstones.Get(key.Tenant, key)
	w := &protocolSession{origin: o, protocol: f.Protocol, lastActivity: ts.timers.CurrentActivity()}
	rowOf(f.Protocol).sessions.restore(ts, w, f, d)
	ts.sessions.Add(w)
	return w
}

// count is how many sessions are tracked.
func (ts *trackers) count() int { return ts.sessions.Len() }

// hasRunning reports whether a session started on the log and did not end.
func (ts *trackers) hasRunning() bool { return len(ts.runningSessions) > 0 }

// countRunningSessions updates the count of a publisher's running AAEP sessions.
func (ts *trackers) countRunningSessions(w *protocolSession, before, after bool) {
	k := fact.PublisherKey{Tenant: w.origin.Key.Tenant, Source: w.origin.Key.Source}
	switch {
	case after && !before:
		ts.runningSessions[k]++
	case before && !after:
		if ts.runningSessions[k]--; ts.runningSessions[k] <= 0 {
			delete(ts.runningSessions, k)
		}
	}
}

// rebuild makes the shares of the publishers.
func (ts *trackers) rebuild() {
	for _, w := range ts.sessions.All() {
		ts.sessions.Count(w.share, tables.ByStoredItems, w.storedItems)
	}
}

// protocolSessionKey identifies a session in one protocol.
type protocolSessionKey struct {
	fact.SourceSession
	protocol string
}

// protocolSession is a tracked session.
type protocolSession struct {
	origin       *fact.Origin // shared; does not change
	protocol     string
	lastActivity eventtime.Activity
	protocolState
	givenHints  map[string]bool // the schema hints that were reported
	storedItems int
	share       *tables.Share `snapshot:"-"` // the publisher's share of the table
}

func (w *protocolSession) ID() protocolSessionKey {
	return protocolSessionKey{w.origin.Key, w.protocol}
}

func (w *protocolSession) Owner() tables.PublisherKey { return w.origin.Key.Publisher().TableKey() }

func (w *protocolSession) Holds(h *tables.Share) { w.share = h }

// giveHint reports whether a schema hint was not given before, and records that it is now.
func (w *protocolSession) giveHint(hint string) bool {
	if w.givenHints[hint] {
		return false
	}
	if w.givenHints == nil {
		w.givenHints = map[string]bool{}
	}
	w.givenHints[hint] = true
	return true
}

// trackedSessions are the functions by which a protocol's sessions are tracked. All must be
// set.
type trackedSessions struct {
	restore     func(ts *trackers, w *protocolSession, f *fact.Fact, d protocolTombstone) // begins with the state in the tombstone
	storedItems func(w *protocolSession) int
	expire      func(ts *trackers, w *protocolSession) *catalogue.Finding // called when the session was idle for too long; returns the finding of that, or nil
	tombstone   func(ts *trackers, w *protocolSession, d *protocolTombstone)
}

// accountStoredItems counts what a session stores. Beyond storedItemLimit, other sessions are
// forgotten; see tables.LRU.Surplus.
func (ts *trackers) accountStoredItems(w *protocolSession) {
	before := w.storedItems
	w.storedItems = rowOf(w.protocol).sessions.storedItems(w)
	ts.storedItems += w.storedItems - before
	ts.sessions.Count(w.share, tables.ByStoredItems, w.storedItems-before)
	for ts.storedItems > ts.storedItemLimit {
		old, found := ts.sessions.Surplus(tables.ByStoredItems, w.Owner(), w.ID())
		if !found {
			return
		}
		ts.forgetProtocolSession(old, protocolTombstone{})
	}
}

// expireProtocolSessions forgets sessions that have been idle for too long.
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
		d := protocolTombstone{}
		d.silence = rowOf(w.protocol).sessions.expire(ts, w)
		ts.forgetProtocolSession(w, d)
	}
}

// nextProtocolSessionIdle lowers next to the time when the next session may have been idle for
// too long.
func (ts *trackers) nextProtocolSessionIdle(next *eventtime.Earliest) {
	if w, ok := ts.sessions.Oldest(); ok {
		at, _ := ts.timers.CheckIdle(w.lastActivity, eventtime.SessionIdle)
		next.KeepEarlier(at)
	}
}

func (ts *trackers) forgetProtocolSession(w *protocolSession, d protocolTombstone) {
	rowOf(w.protocol).sessions.tombstone(ts, w, &d)
	ts.storedItems -= w.storedItems
	ts.sessions.Count(w.share, tables.ByStoredItems, -w.storedItems)
	ts.tombstones.Put(w.origin.Key.Tenant, w.ID(), d)
	ts.sessions.Remove(w.ID())
}

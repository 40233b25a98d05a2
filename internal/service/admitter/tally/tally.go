// Package tally counts what the limits of policies have used up, in memory. Begin with Tally.
package tally

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// Bounds of a tally. Beyond them a count is unknown, and unknown counts are denied.
const (
	maxCounters         = 200_000 // of all tenants
	maxTenantCounters   = 50_000  // per tenant, so that no tenant alone can use up the others' room
	maxPendingDecisions = 100_000 // own decisions of all tenants not yet seen in the log

	// pendingFor is how long an own decision that may not be recorded can take to arrive from the
	// log. An arrival after it is counted twice, never not at all.
	pendingFor = 2 * time.Minute
	// sweepEvery is how often idle counters are dropped.
	sweepEvery = time.Second
)

// Tally holds the counts in memory. It implements policy.Counters and is safe for
// concurrent use. The caller passes all times; it reads no clock.
type Tally struct {
	mu      sync.Mutex
	tenants map[string]*tenantCounters
	reach   time.Duration              // the longest window of which everything is counted
	size    int                        // counters of all tenants
	pending map[string]pendingDecision // own decisions, by id
	closed  bool                       // another tally took over: nothing is reserved any more
	swept   time.Time
}

// tenantCounters are the counters of one tenant.
type tenantCounters struct {
	byKey        map[string]*counter
	unknownUntil time.Time // until then a missing counter may have been left out for lack of room
}

type counter struct {
	window time.Duration
	slots  []tallySlot // ordered by time
}

// tallySlot is the sum of one sixtieth of a window.
type tallySlot struct{ at, sum int64 }

type pendingDecision struct {
	at     time.Time
	counts []policy.Count
}

// New is an empty tally, to be filled with what the log has of windows up to reach. Of longer ones
// it knows nothing.
func New(reach time.Duration) *Tally {
	return &Tally{reach: reach, tenants: map[string]*tenantCounters{}, pending: map[string]pendingDecision{}}
}

func (c *counter) total(now time.Time) (sum int64) {
	first := policy.WindowSlot(c.window, now) - policy.WindowSlots
	for _, s := range c.slots {
		if s.at >= first {
			sum = min(sum+s.sum, policy.MaxAmount)
		}
	}
	return sum
}

// addAmount adds an amount and drops slots that no longer count.
func (c *counter) addAmount(amount int64, at time.Time) {
	i := policy.WindowSlot(c.window, at)
	place, there := slices.BinarySearchFunc(c.slots, i, func(s tallySlot, i int64) int { return cmp.Compare(s.at, i) })
	if !there {
		c.slots = slices.Insert(c.slots, place, tallySlot{at: i})
	}
	c.slots[place].sum = max(0, min(c.slots[place].sum+amount, policy.MaxAmount))
	newest := c.slots[len(c.slots)-1].at
	c.slots = slices.DeleteFunc(c.slots, func(s tallySlot) bool { return s.at < newest-policy.WindowSlots })
}

func (c *counter) isIdle(now time.Time) bool {
	return len(c.slots) == 0 || c.slots[len(c.slots)-1].at < policy.WindowSlot(c.window, now)-policy.WindowSlots
}

// Total implements policy.Counters.
func (l *Tally) Total(key string, window time.Duration, now time.Time) (total int64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totalOf(key, window, now)
}

func (l *Tally) totalOf(key string, window time.Duration, now time.Time) (int64, bool) {
	a := l.tenants[policy.CounterTenant(key)]
	switch {
	case window > l.reach:
		return 0, false
	case len(l.pending) >= maxPendingDecisions:
		return 0, false
	case a == nil:
		return 0, l.size < maxCounters
	}
	if c := a.byKey[key]; c != nil {
		return c.total(now), true
	}
	return 0, l.hasRoom(a) && !now.Before(a.unknownUntil)
}

func (l *Tally) hasRoom(a *tenantCounters) bool {
	return l.size < maxCounters && len(a.byKey) < maxTenantCounters
}

// addPast adds an amount that is counted already. Without room for it, the tenant's missing counters
// are unknown until it no longer counts.
func (l *Tally) addPast(key string, window time.Duration, amount int64, at time.Time) {
	if l.addCount(key, window, amount, at) {
		return
	}
	a := l.tenants[policy.CounterTenant(key)]
	if until := at.Add(2 * window); until.After(a.unknownUntil) {
		a.unknownUntil = until
	}
}

// addCount reports whether there was room for the counter.
func (l *Tally) addCount(key string, window time.Duration, amount int64, at time.Time) bool {
	tenant := policy.CounterTenant(key)
	a := l.tenants[tenant]
	if a == nil {
		a = &tenantCounters{byKey: map[string]*counter{}}
		l.tenants[tenant] = a
	}
	c := a.byKey[key]
	if c == nil {
		if !l.hasRoom(a) {
			return false
		}
		c = &counter{window: window}
		a.byKey[key] = c
		l.size++
	}
	c.addAmount(amount, at)
	return true
}

// Reserve counts an own decision before it is recorded. It counts nothing and returns false if a
// limit would be exceeded, there is no room, or another tally has taken over.
func (l *Tally) Reserve(id string, counts []policy.Count, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.dropIdle(now)
	for _, c := range counts {
		total, known := l.totalOf(c.Key, c.Window, now)
		if !known || c.Max != policy.Unbounded && total > c.Max-c.Amount {
			return false
		}
	}
	for i, c := range counts {
		if !l.addCount(c.Key, c.Window, c.Amount, now) {
			l.subtract(counts[:i], now)
			return false
		}
	}
	l.pending[id] = pendingDecision{now, counts}
	return true
}

// Release removes an own decision that was certainly not recorded.
func (l *Tally) Release(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u, there := l.pending[id]; there {
		delete(l.pending, id)
		l.subtract(u.counts, u.at)
	}
}

func (l *Tally) subtract(counts []policy.Count, at time.Time) {
	for _, c := range counts {
		if a := l.tenants[policy.CounterTenant(c.Key)]; a != nil && a.byKey[c.Key] != nil {
			a.byKey[c.Key].addAmount(-c.Amount, at)
		}
	}
}

// AddRecorded counts a decision of the log, without what was counted when it was made here. The
// clocks of the decision and of the log cannot shorten how long it counts, and one ahead of now
// cannot prolong it.
func (l *Tally) AddRecorded(d events.Decision, stored, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.pending[d.DecisionID].counts
	delete(l.pending, d.DecisionID)
	counted := func(key string) bool {
		return slices.ContainsFunc(own, func(c policy.Count) bool { return c.Key == key })
	}
	at := d.DecidedAt.Time
	if at.Before(stored) {
		at = stored
	}
	if at.After(now) {
		at = now
	}
	l.dropIdle(now)
	for _, c := range d.Counts {
		window := time.Duration(c.WindowMS) * time.Millisecond
		if counted(c.Key) || window < policy.MinWindow || window > policy.MaxWindow || c.Amount < 0 || c.Amount > policy.MaxAmount || at.Add(2*window).Before(now) {
			continue
		}
		l.addPast(c.Key, window, c.Amount, at)
	}
}

// Settle forgets an own decision that another tally has seen in the log and counts.
func (l *Tally) Settle(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
}

// InheritPending takes over the own decisions that another tally has not seen in the log, and closes
// that one. Some may then be counted twice, none is missed.
func (l *Tally) InheritPending(o *Tally) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	o.closed = true
	for id, u := range o.pending {
		for _, c := range u.counts {
			l.addPast(c.Key, c.Window, c.Amount, u.at)
		}
		l.pending[id] = u
	}
}

// dropIdle drops counters without an addition within their window.
func (l *Tally) dropIdle(now time.Time) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for tenant, a := range l.tenants {
		for key, c := range a.byKey {
			if c.isIdle(now) {
				delete(a.byKey, key)
				l.size--
			}
		}
		if len(a.byKey) == 0 && now.After(a.unknownUntil) {
			delete(l.tenants, tenant)
		}
	}
	for id, u := range l.pending {
		if now.Sub(u.at) > pendingFor {
			delete(l.pending, id)
		}
	}
}

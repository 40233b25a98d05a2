package correlation

import (
	"container/heap"
	"iter"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
)

// timers hold event time, the deadlines of calls, and the time of the next timer.
type timers struct {
	opts *engineOptions `snapshot:"-"` // not part of a snapshot
	eventtime.Clock
	callDeadlines deadlines `snapshot:"-"` // the section of the calls has them: see restoreDeadline
	nextTimer     time.Time `snapshot:"-"` // no timer fires before it; zero after a restart, so that the first message checks all timers
}

// clock is the clock that all parts share.
func (t *timers) clock() *eventtime.Clock { return &t.Clock }

// anyDue reports whether a timer may be due.
func (t *timers) anyDue() bool { return !t.Now().Before(t.nextTimer) }

// wakeAt makes sure that timers are checked at a time.
func (t *timers) wakeAt(at time.Time) { t.nextTimer = earlierTime(t.nextTimer, at) }

// popDueCall returns the next call whose deadline has passed. If there is none, it sets
// nextTimer to the next deadline.
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

// extendDeadline moves a call's deadline because of one more message. open is the number of
// open calls.
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

// restoreDeadline adds the deadline of an open call that was read from a snapshot.
func (t *timers) restoreDeadline(c *call) {
	if !c.deadline.IsZero() {
		heap.Push(&t.callDeadlines, deadline{c.deadline, c})
	}
}

// approvalDeadline returns the later of at and a deadline that leaves an approval its time.
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

// dropStaleDeadlines removes stale deadlines. A call that is asked about often has many.
func (t *timers) dropStaleDeadlines() {
	kept := t.callDeadlines[:0]
	for _, d := range t.callDeadlines {
		if !d.isStale() {
			kept = append(kept, d)
		}
	}
	clear(t.callDeadlines[len(kept):])
	t.callDeadlines = kept
	heap.Init(&t.callDeadlines)
}

// deadline is the time at which a call is abandoned. It is stale once the call has closed or
// has a later deadline.
type deadline struct {
	at   time.Time
	call *call
}

func (d deadline) isStale() bool { return !d.call.isOpen() || !d.call.deadline.Equal(d.at) }

// deadlines is a heap, by time and then by the order of the calls. No two elements are equal,
// so the order of removal does not depend on the layout of the heap.
type deadlines []deadline

func (d deadlines) Len() int      { return len(d) }
func (d deadlines) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d deadlines) Less(i, j int) bool {
	if d[i].at.Equal(d[j].at) {
		return d[i].call.order < d[j].call.order
	}
	return d[i].at.Before(d[j].at)
}

func (d *deadlines) Push(x any) { *d = append(*d, x.(deadline)) }
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	removed := (*d)[last]
	(*d)[last] = deadline{}
	*d = (*d)[:last]
	return removed
}

// next is the first deadline that is not stale. It removes stale ones before it.
func (d *deadlines) next() (deadline, bool) {
	for len(*d) > 0 {
		if top := (*d)[0]; !top.isStale() {
			return top, true
		}
		heap.Pop(d)
	}
	return deadline{}, false
}

// popDue removes and returns the next deadline's call if the deadline has passed.
func (d *deadlines) popDue(now time.Time) (*call, bool) {
	top, ok := d.next()
	if !ok || now.Before(top.at) {
		return nil, false
	}
	heap.Pop(d)
	return top.call, true
}

// set sets the deadline of a call. It never moves a deadline to an earlier time.
func (d *deadlines) set(c *call, at time.Time) {
	if at.After(c.deadline) {
		c.deadline = at
		heap.Push(d, deadline{at, c})
	}
}

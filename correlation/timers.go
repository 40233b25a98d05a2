package correlation

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/correlation/internal/eventtime"
)

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

// Pack gives those that count, in the order of time, which is a heap, too.
func (d *deadlines) Pack() any {
	list := make([]deadline, 0, len(*d))
	for _, x := range *d {
		if !x.isStale() {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b deadline) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.call.order, b.call.order))
	})
	return &list
}

// Unpack takes what Pack gave.
func (d *deadlines) Unpack(form any) { *d = *form.(*[]deadline) }

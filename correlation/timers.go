package correlation

import (
	"iter"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
)

// eventTime is how time passes on the log: by the broker's clock, which may be set.
//
// Deadlines are in log time, which never runs back. When the broker's clock is set
// back, log time goes on from where it is, so that deadlines that were set under the
// wrong clock fire when they should. A leap ahead by as much is the correction.
//
// The log does not say whether a leap ahead is hours without messages or a wrong clock.
// Timers that it makes due fire; their findings are retracted if the clock was wrong. A
// leap alone makes nothing idle, so that what a retraction needs is still known: a
// session is idle for a day if a day has passed, and messages came in as many quarters
// of a day since. (A replay of one session needs one message in each quarter, not all
// messages: see NextIdle.)
type eventTime struct {
	latest         time.Time
	setBackBy      time.Duration // what the broker's clock was set back by, and did not make up for
	activeQuarters int           // of a day, in which there were messages
}

const (
	minSetBack  = time.Minute     // clocks of servers that take turns differ by less
	idleQuarter = sessionIdle / 4 // of log time
)

// advanceTo takes the broker's time of a message.
func (l *eventTime) advanceTo(t time.Time) {
	if l.latest.IsZero() {
		l.latest = t
	}
	step := t.Add(l.setBackBy).Sub(l.latest)
	switch {
	case step < -minSetBack:
		l.setBackBy -= step
		return
	case l.setBackBy > 0 && step >= l.setBackBy-minSetBack:
		step -= l.setBackBy
		l.setBackBy = 0
	}
	if step > 0 {
		before := l.latest.Truncate(idleQuarter)
		if l.latest = l.latest.Add(step); l.latest.Truncate(idleQuarter) != before {
			l.activeQuarters++
		}
	}
}

// advanceToRecorded is advanceTo for the times in the events of a recording: at an earlier
// time than the last, time stands still, and a leap ahead counts as activity.
func (l *eventTime) advanceToRecorded(t time.Time) {
	if step := t.Sub(l.latest); step > 0 {
		l.activeQuarters += int(t.Truncate(idleQuarter).Sub(l.latest.Truncate(idleQuarter)) / idleQuarter)
		l.latest = t
	}
}

// toBrokerTime is a point of log time by the present clock of the broker.
func (l *eventTime) toBrokerTime(t time.Time) time.Time { return t.Add(-l.setBackBy) }

// fromBrokerTime is the point of log time at which the broker's clock will show t.
func (l *eventTime) fromBrokerTime(t time.Time) time.Time { return t.Add(l.setBackBy) }

// activity is when a session or publisher was last active.
type activity struct {
	at             time.Time
	activeQuarters int
}

// now is how far time has passed on the log.
func (l *eventTime) now() time.Time { return l.latest }

// startAt sets the time at which a recording begins.
func (l *eventTime) startAt(t time.Time) { l.latest = t }

func (l *eventTime) currentActivity() activity { return activity{l.latest, l.activeQuarters} }

// checkIdle reports whether a session or publisher has been idle for the duration. If
// not, again is the earliest time at which it can be.
func (l *eventTime) checkIdle(s activity, patience time.Duration) (again time.Time, is bool) {
	until := s.at.Add(patience)
	if l.activeQuarters-s.activeQuarters < int(patience/idleQuarter) {
		return l.latest.Truncate(idleQuarter).Add(idleQuarter), false
	}
	return until, !l.latest.Before(until)
}

// earliestTime is the first of some points in time, if there is any.
type earliestTime struct {
	at  time.Time
	any bool
}

func (s *earliestTime) keepEarlier(t time.Time) {
	if !s.any || t.Before(s.at) {
		s.at, s.any = t, true
	}
}

// timers are event time and what time alone brings about: the deadlines of calls, and
// when the next timer can fire.
type timers struct {
	opts *engineOptions `snapshot:"-"` // given anew
	eventTime
	callDeadlines deadlines
	nextTimer     time.Time `snapshot:"-"` // no timer fires before it; the first message after a restart looks at all
}

// anyDue reports whether a timer may be due.
func (t *timers) anyDue() bool { return !t.now().Before(t.nextTimer) }

// wakeAt notes that a timer may fire at a time.
func (t *timers) wakeAt(at time.Time) { t.nextTimer = earlierTime(t.nextTimer, at) }

// popDueCall gives the next call whose deadline has come. When there is none, the next
// timer is set to the deadline after it.
func (t *timers) popDueCall() (*call, bool) {
	if c, due := t.callDeadlines.popDue(t.now()); due {
		return c, true
	}
	t.nextTimer = t.now().Add(sessionIdle)
	if next, any := t.callDeadlines.next(); any {
		t.wakeAt(next.at)
	}
	return nil, false
}

// nextDeadline is the next deadline of a call.
func (t *timers) nextDeadline() (time.Time, bool) {
	d, any := t.callDeadlines.next()
	return d.at, any
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
	at := t.now().Add(max(t.opts.MissingAfter, 2*min(f.ExpectedDuration, maxExpectedDuration)))
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
	end := t.fromBrokerTime(a.ExpiresAt)
	if limit := t.now().Add(maxApprovalWait); end.After(limit) {
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

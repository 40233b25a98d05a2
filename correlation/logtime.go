package correlation

import "time"

// eventTime is how time passes on the log: by the broker's clock, which may be set.
//
// Deadlines are in log time. It never runs back: when the broker's clock is set
// back, it goes on from where it is, so that what was set while the clock was wrong
// fires when it should. A leap ahead by as much is the clock set right again.
//
// Whether a leap ahead is hours in which nobody wrote anything or a clock gone
// wrong, the log does not say. What it makes due fires, and is withdrawn if it was
// wrong; but nothing is forgotten over it that would be needed for that. Somebody
// has been idle for a day if a day has passed and messages came in that many
// quarters of a day since. (Who replays one session alone has to find one message
// in each quarter, not all: see NextIdle.)
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

// advanceToRecorded is reach for the times that a recording's events say: where one is before the
// last, time stands still, and what is said of hours is believed.
func (l *eventTime) advanceToRecorded(t time.Time) {
	if step := t.Sub(l.latest); step > 0 {
		l.activeQuarters += int(t.Truncate(idleQuarter).Sub(l.latest.Truncate(idleQuarter)) / idleQuarter)
		l.latest = t
	}
}

// toBrokerTime is a point of log time by the broker's clock as it is now.
func (l *eventTime) toBrokerTime(t time.Time) time.Time { return t.Add(-l.setBackBy) }

// fromBrokerTime is the point of log time at which the broker's clock will show t.
func (l *eventTime) fromBrokerTime(t time.Time) time.Time { return t.Add(l.setBackBy) }

// activity is when somebody was seen last.
type activity struct {
	at             time.Time
	activeQuarters int
}

// now is how far time has passed on the log.
func (l *eventTime) now() time.Time { return l.latest }

// startAt sets the time at which a recording begins.
func (l *eventTime) startAt(t time.Time) { l.latest = t }

func (l *eventTime) currentActivity() activity { return activity{l.latest, l.activeQuarters} }

// checkIdle tells whether somebody has been idle for so long, and when that is to be
// asked again: it is not before.
func (l *eventTime) checkIdle(s activity, patience time.Duration) (again time.Time, is bool) {
	until := s.at.Add(patience)
	if l.activeQuarters-s.activeQuarters < int(patience/idleQuarter) {
		return l.latest.Truncate(idleQuarter).Add(idleQuarter), false
	}
	return until, !l.latest.Before(until)
}

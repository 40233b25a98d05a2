// Package eventtime is how time passes on a log.
package eventtime

import (
	"time"
)

// Clock is how time passes on the log: by the broker's clock, which may be set.
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
type Clock struct {
	latest         time.Time
	setBackBy      time.Duration // what the broker's clock was set back by, and did not make up for
	activeQuarters int           // of a day, in which there were messages
}

const (
	minSetBack  = time.Minute     // clocks of servers that take turns differ by less
	IdleQuarter = SessionIdle / 4 // of log time
)

// AdvanceTo takes the broker's time of a message.
func (l *Clock) AdvanceTo(t time.Time) {
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
		before := l.latest.Truncate(IdleQuarter)
		if l.latest = l.latest.Add(step); l.latest.Truncate(IdleQuarter) != before {
			l.activeQuarters++
		}
	}
}

// AdvanceToRecorded is advanceTo for the times in the events of a recording: at an earlier
// time than the last, time stands still, and a leap ahead counts as activity.
func (l *Clock) AdvanceToRecorded(t time.Time) {
	if step := t.Sub(l.latest); step > 0 {
		l.activeQuarters += int(t.Truncate(IdleQuarter).Sub(l.latest.Truncate(IdleQuarter)) / IdleQuarter)
		l.latest = t
	}
}

// ToBrokerTime is a point of log time by the present clock of the broker.
func (l *Clock) ToBrokerTime(t time.Time) time.Time { return t.Add(-l.setBackBy) }

// FromBrokerTime is the point of log time at which the broker's clock will show t.
func (l *Clock) FromBrokerTime(t time.Time) time.Time { return t.Add(l.setBackBy) }

// Activity is when a session or publisher was last active.
type Activity struct {
	at             time.Time
	activeQuarters int
}

// Now is how far time has passed on the log.
func (l *Clock) Now() time.Time { return l.latest }

// StartAt sets the time at which a recording begins.
func (l *Clock) StartAt(t time.Time) { l.latest = t }

func (l *Clock) CurrentActivity() Activity { return Activity{l.latest, l.activeQuarters} }

// CheckIdle reports whether a session or publisher has been idle for the duration. If
// not, again is the earliest time at which it can be.
func (l *Clock) CheckIdle(s Activity, patience time.Duration) (again time.Time, is bool) {
	until := s.at.Add(patience)
	if l.activeQuarters-s.activeQuarters < int(patience/IdleQuarter) {
		return l.latest.Truncate(IdleQuarter).Add(IdleQuarter), false
	}
	return until, !l.latest.Before(until)
}

// Earliest is the first of some points in time, if there is any.
type Earliest struct {
	At  time.Time
	Any bool
}

func (s *Earliest) KeepEarlier(t time.Time) {
	if !s.Any || t.Before(s.At) {
		s.At, s.Any = t, true
	}
}

// SessionIdle is the log time after which an idle session without open calls is forgotten.
const SessionIdle = 24 * time.Hour

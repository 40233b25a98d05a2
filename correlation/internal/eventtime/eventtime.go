// Package eventtime derives the time of a log from the broker's times of its messages.
package eventtime

import (
	"time"
)

// Clock is the event time of a log. It follows the broker's clock, which an operator may set.
//
// Event time never runs back. If the broker's clock is set back, event time continues from
// where it is, so that deadlines set under the wrong clock fire when they should. A later leap
// ahead by as much is the correction.
//
// The log does not show whether a leap ahead is an idle time or a wrong clock. Timers that
// become due by a leap fire; their findings are retracted if the clock was wrong. A leap alone
// makes no session idle, so that the state needed for a retraction is kept: a session is idle
// for a day if a day has passed and messages came in as many quarters of a day since. (A
// replay of one session needs one message in each quarter, not all messages: see
// Correlator.NextIdle.)
type Clock struct {
	latest         time.Time
	setBackBy      time.Duration // how far event time is ahead of the broker's clock
	activeQuarters int           // quarters of a day with messages
}

const (
	minSetBack  = time.Minute     // the clocks of a cluster's servers differ by less
	IdleQuarter = SessionIdle / 4 // of event time
)

// AdvanceTo advances event time by the broker's time of a message.
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

// AdvanceToRecorded is AdvanceTo for the time of a recorded event. An earlier time than the
// last does not advance event time. A leap ahead counts as activity.
func (l *Clock) AdvanceToRecorded(t time.Time) {
	if step := t.Sub(l.latest); step > 0 {
		l.activeQuarters += int(t.Truncate(IdleQuarter).Sub(l.latest.Truncate(IdleQuarter)) / IdleQuarter)
		l.latest = t
	}
}

// ToBrokerTime converts event time to the broker's present clock.
func (l *Clock) ToBrokerTime(t time.Time) time.Time { return t.Add(-l.setBackBy) }

// FromBrokerTime is the event time at which the broker's clock will show t.
func (l *Clock) FromBrokerTime(t time.Time) time.Time { return t.Add(l.setBackBy) }

// Activity is when a session or a publisher was last active.
type Activity struct {
	at             time.Time
	activeQuarters int
}

// Now is the present event time.
func (l *Clock) Now() time.Time { return l.latest }

// StartAt sets the time at which a recording begins.
func (l *Clock) StartAt(t time.Time) { l.latest = t }

// CurrentActivity is the activity of a session that is active now.
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

// Earliest is the earliest of the times that were passed to KeepEarlier; Any is false if there
// were none.
type Earliest struct {
	At  time.Time
	Any bool
}

// KeepEarlier keeps t if it is earlier than At.
func (s *Earliest) KeepEarlier(t time.Time) {
	if !s.Any || t.Before(s.At) {
		s.At, s.Any = t, true
	}
}

// SessionIdle is the event time after which an idle session without open calls is forgotten.
const SessionIdle = 24 * time.Hour

package correlation

import "time"

// logTime is how time passes on the log: by the broker's clock, which may be set.
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
type logTime struct {
	now      time.Time
	behind   time.Duration // what the broker's clock was set back by, and did not make up for
	quarters int           // of a day, in which there were messages
}

const (
	setBack = time.Minute     // clocks of servers that take turns differ by less
	quarter = sessionIdle / 4 // of log time
)

// reach takes the broker's time of a message.
func (l *logTime) reach(t time.Time) {
	if l.now.IsZero() {
		l.now = t
	}
	step := t.Add(l.behind).Sub(l.now)
	switch {
	case step < -setBack:
		l.behind -= step
		return
	case l.behind > 0 && step >= l.behind-setBack:
		step -= l.behind
		l.behind = 0
	}
	if step > 0 {
		before := l.now.Truncate(quarter)
		if l.now = l.now.Add(step); l.now.Truncate(quarter) != before {
			l.quarters++
		}
	}
}

// take is reach for the times that a recording's events say: where one is before the
// last, time stands still, and what is said of hours is believed.
func (l *logTime) take(t time.Time) {
	if step := t.Sub(l.now); step > 0 {
		l.quarters += int(t.Truncate(quarter).Sub(l.now.Truncate(quarter)) / quarter)
		l.now = t
	}
}

// shown is a point of log time by the broker's clock as it is now.
func (l *logTime) shown(t time.Time) time.Time { return t.Add(-l.behind) }

// ofClock is the point of log time at which the broker's clock will show t.
func (l *logTime) ofClock(t time.Time) time.Time { return t.Add(l.behind) }

// seen is when somebody was seen last.
type seen struct {
	at       time.Time
	quarters int
}

func (l *logTime) here() seen { return seen{l.now, l.quarters} }

// idle tells whether somebody has been idle for so long, and when that is to be
// asked again: it is not before.
func (l *logTime) idle(s seen, patience time.Duration) (again time.Time, is bool) {
	until := s.at.Add(patience)
	if l.quarters-s.quarters < int(patience/quarter) {
		return l.now.Truncate(quarter).Add(quarter), false
	}
	return until, !l.now.Before(until)
}

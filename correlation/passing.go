package correlation

import "time"

// advanceTimers lets time pass up to t: deadlines that lie before or at it fire, and
// sessions that have been idle for too long are forgotten. Until the time that it
// finds there is nothing of the kind, unless a deadline is set that comes before.
// That holds because sessions are ordered by when they were last seen: whoever gets
// one to the front notes that it was seen (peek leaves it where it is). Otherwise
// who goes on from a snapshot would forget at another time.
func (e *engine) advanceTimers(t time.Time) {
	if e.opts.fromRecording {
		e.timers.advanceToRecorded(t)
	} else {
		e.timers.advanceTo(t)
	}
	if e.timers.anyDue() {
		e.expireCallDeadlines()
		e.trackers.expireProtocolSessions()
		e.expireSessions()
	}
	e.negotiations.expireNegotiations()
}

// expireCallDeadlines abandons the calls whose deadlines have come.
func (e *engine) expireCallDeadlines() {
	for {
		c, due := e.timers.popDueCall()
		if !due {
			return
		}
		e.abandonCall(c, closedByDeadline, &fact{at: c.deadline})
	}
}

// expireSessions forgets the sessions that have been idle for too long.
func (e *engine) expireSessions() {
	for s := e.calls.popIdle(); s != nil; s = e.calls.popIdle() {
		e.calls.forgetSession(s)
	}
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

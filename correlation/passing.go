package correlation

import "time"

// advanceTimers lets time pass up to t: deadlines that lie before or at it fire, and
// sessions that have been idle for too long are forgotten. Until the time that it
// finds there is nothing of the kind, unless a deadline is set that comes before.
// That holds because sessions are ordered by when they were last seen: whoever gets
// one to the front notes that it was seen (peek leaves it where it is). Otherwise
// who goes on from a snapshot would forget at another time.
func (m *machine) advanceTimers(t time.Time) {
	if m.opts.fromRecording {
		m.timers.advanceToRecorded(t)
	} else {
		m.timers.advanceTo(t)
	}
	if m.timers.anyDue() {
		m.expireCallDeadlines()
		m.trackers.expireProtocolSessions()
		m.expireSessions()
	}
	m.negotiations.expireNegotiations()
}

// expireCallDeadlines abandons the calls whose deadlines have come.
func (m *machine) expireCallDeadlines() {
	for {
		c, due := m.timers.popDueCall()
		if !due {
			return
		}
		m.abandonCall(c, closedByDeadline, &fact{at: c.deadline})
	}
}

// expireSessions forgets the sessions that have been idle for too long.
func (m *machine) expireSessions() {
	for s := m.calls.popIdle(); s != nil; s = m.calls.popIdle() {
		m.calls.forgetSession(s)
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

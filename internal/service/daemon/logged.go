package daemon

import "time"

// LoggedProblem is the problem that a loop logged last: what is tried again every second shall not fill the log.
type LoggedProblem struct {
	text string
	at   time.Time
}

// logAgain is how often a problem that stays is logged.
const logAgain = time.Minute

// IsDue reports whether a problem is to be logged: a new one, and one that stays after logAgain. It notes that it is.
func (l *LoggedProblem) IsDue(problem string, now time.Time) bool {
	if problem == l.text && now.Sub(l.at) < logAgain {
		return false
	}
	*l = LoggedProblem{problem, now}
	return true
}

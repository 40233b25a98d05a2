package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// OldestUndecided is when the oldest open call became known that nobody has
// decided yet: it has no verdict, or one that waits for somebody. It looks at
// every open call, so it is not for every message.
func (c *Correlator) OldestUndecided() (since time.Time, ok bool) {
	for _, d := range c.machine.callDeadlines {
		if d.isStale() || len(d.call.timeline) == 0 {
			continue
		}
		at := d.call.timeline[0].brokerTime()
		if (!ok || at.Before(since)) && d.call.isUndecided() {
			since, ok = at, true
		}
	}
	return since, ok
}

func (c *call) isUndecided() bool {
	switch c.directVerdict().verdict {
	case events.Allow, events.Deny:
		return false
	}
	return true
}

package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// OldestUndecided is when the oldest open call became known that nobody has
// decided yet: it has no verdict, or one that waits for somebody. It looks at
// every open call, so it is not for every message.
func (c *Correlator) OldestUndecided() (since time.Time, ok bool) {
	for open := range c.engine.timers.openCalls() {
		if len(open.timeline) == 0 {
			continue
		}
		at := open.timeline[0].brokerTime()
		if (!ok || at.Before(since)) && open.isUndecided() {
			since, ok = at, true
		}
	}
	return since, ok
}

func (x *details) isUndecided() bool {
	switch x.directVerdict().verdict {
	case events.Allow, events.Deny:
		return false
	}
	return true
}

package correlation

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// OldestUndecided is when the oldest open call became known that nobody has
// decided yet: it has no verdict, or one that waits for somebody. It looks at
// every open call, so it is not for every message.
func (c *Correlator) OldestUndecided() (since time.Time, ok bool) {
	for _, d := range c.m.due {
		if d.stale() || len(d.call.timeline) == 0 {
			continue
		}
		at := d.call.timeline[0].at()
		if (!ok || at.Before(since)) && d.call.undecided() {
			since, ok = at, true
		}
	}
	return since, ok
}

func (c *call) undecided() bool {
	switch c.own().verdict {
	case events.Allow, events.Deny:
		return false
	}
	return true
}

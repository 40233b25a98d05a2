package sessionsecrets

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/events"
)

const (
	// maxCached bounds the keys in memory, of some 400 bytes each.
	maxCached = 32_768
	// Idle is how long an unused key stays in memory. It is well under the time that a session
	// must have been silent before it is erased (erasureplan.DefaultIdle): by then no service has
	// its key any more. If an operator sets a shorter time, the erasure record on the log makes
	// the services drop the key.
	Idle = 5 * time.Minute
)

// cache holds keys while they are in use.
type cache struct {
	limit int

	mu      sync.Mutex
	entries map[events.SessionID]entry
	dropped uint64 // number of drops
}

type entry struct {
	key  Secret
	used time.Time
}

func newCache(limit int) *cache {
	return &cache{limit: limit, entries: map[events.SessionID]entry{}}
}

// usedStep is the precision of a key's last use: not every hit needs a write.
const usedStep = Idle / 16

func (c *cache) get(k events.SessionID, now time.Time) (Secret, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[k]
	if !ok {
		return Secret{}, false
	}
	switch idle := now.Sub(e.used); {
	case idle >= Idle:
		delete(c.entries, k)
		return Secret{}, false
	case idle >= usedStep:
		c.entries[k] = entry{e.key, now}
	}
	return e.key, true
}

// dropCount is the value to pass to put.
func (c *cache) dropCount() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// put stores a key, unless any key was dropped since dropped was read: it may be this one.
func (c *cache) put(k events.SessionID, key Secret, dropped uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if dropped != c.dropped {
		return
	}
	if len(c.entries) >= c.limit {
		c.makeRoom(now)
	}
	c.entries[k] = entry{key, now}
}

// makeRoom drops idle keys and, if that is not enough, a quarter of the rest.
func (c *cache) makeRoom(now time.Time) {
	for k, e := range c.entries {
		if now.Sub(e.used) >= Idle {
			delete(c.entries, k)
		}
	}
	for k := range c.entries {
		if len(c.entries) <= c.limit*3/4 {
			return
		}
		delete(c.entries, k)
	}
}

func (c *cache) drop(k events.SessionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, k)
	c.dropped++
}

func (c *cache) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.dropped++
}

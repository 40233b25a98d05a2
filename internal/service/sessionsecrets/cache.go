package sessionsecrets

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/evidence"
)

const (
	// maxCached bounds the keys in memory, each of some 400 bytes.
	maxCached = 32_768
	// Idle is how long a key stays in memory that nobody asks for. It is well under
	// the time that a session must have been silent to be erased
	// (erasureplan.DefaultQuiet): by then no service has its key any more. Where an
	// operator asks for less, the erasure's record on the log has them drop it.
	Idle = 5 * time.Minute
)

// cache holds keys for as long as they are used.
type cache struct {
	limit int

	mu      sync.Mutex
	entries map[evidence.SessionID]entry
	dropped uint64 // how often keys were dropped
}

type entry struct {
	key  Secret
	used time.Time
}

func newCache(limit int) *cache {
	return &cache{limit: limit, entries: map[evidence.SessionID]entry{}}
}

// usedStep is how exactly it is known when a key was used last: a hit need not
// write each time.
const usedStep = Idle / 16

func (c *cache) get(k evidence.SessionID, now time.Time) (Secret, bool) {
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

// dropCount is what put has to be told.
func (c *cache) dropCount() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// put keeps a key, unless one was dropped since it was asked for: it may be that
// one.
func (c *cache) put(k evidence.SessionID, key Secret, dropped uint64, now time.Time) {
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

// makeRoom forgets what is idle and, if that is not enough, a quarter of the rest.
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

func (c *cache) drop(k evidence.SessionID) {
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

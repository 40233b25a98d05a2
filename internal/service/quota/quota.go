// Package quota bounds what each caller and each tenant sends in a second. Begin with Meter.
package quota

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

// Rate is a limit per second; zero means no limit.
type Rate struct {
	Messages int
	Bytes    int // see Cost
}

// Quotas are the limits of a tenant and of each of its publishers.
type Quotas struct {
	Tenant, Publisher Rate
	// Burst is how many seconds' worth of the rate may come at once: a limit of 100 per second
	// with a burst of 10 s permits 1,000 at once after a pause.
	Burst time.Duration
}

// valueCost is what a value of a document costs beside its bytes, in bytes. The correlator and
// the auditor process every value of an event, which takes as long as copying some hundred bytes.
const valueCost = 128

// Cost is what a message counts against a limit of bytes: the size of headers and body, plus valueCost for
// each comma of the body, since a document has about as many commas as values.
func Cost(header map[string][]string, body []byte) int {
	return HeaderBytes(header) + len(body) + valueCost*bytes.Count(body, []byte{','})
}

// HeaderBytes is the size of headers, as they come from the connection.
func HeaderBytes(header map[string][]string) (n int) {
	for name, values := range header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// tokenBucket is a token bucket that counts up: level is what was used and has not drained yet.
type tokenBucket struct {
	level float64
	at    time.Time
}

// levelAfter is the level once n more are used.
func (b tokenBucket) levelAfter(now time.Time, rate, n int) float64 {
	level := b.level - now.Sub(b.at).Seconds()*float64(rate)
	return max(level, 0) + float64(n)
}

// quotaUsage is the usage of one tenant or publisher.
type quotaUsage struct {
	messages, bytes tokenBucket
	lastFinding     time.Time // of a publisher: time of its last finding
}

// Meter applies quotas. It is safe for concurrent use. Its memory is one entry for each
// authenticated publisher.
type Meter struct {
	quotas Quotas

	mu         sync.Mutex
	tenants    map[string]*quotaUsage
	publishers map[publisherKey]*quotaUsage
}

type publisherKey struct{ tenant, name string }

// NewMeter makes a Meter without usage.
func NewMeter(q Quotas) *Meter {
	return &Meter{quotas: q, tenants: map[string]*quotaUsage{}, publishers: map[publisherKey]*quotaUsage{}}
}

// Excess describes the limit that a message exceeds.
type Excess struct {
	Of    string // "publisher" or "tenant"
	What  string // "messages" or "bytes"
	Limit int    // per second
	First bool   // the publisher's first in this window: a finding is due
}

// findingWindow is the time that one finding about a publisher's excess covers.
const findingWindow = 10 * time.Minute

// Take counts a message in full if it is within the limits. Otherwise ok is false and nothing is
// counted.
func (m *Meter) Take(now time.Time, tenant, name string, cost int) (e Excess, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := usageOf(m.publishers, publisherKey{tenant, name})
	t := usageOf(m.tenants, tenant)
	for _, c := range []struct {
		of   string
		use  *quotaUsage
		rate Rate
	}{{"publisher", p, m.quotas.Publisher}, {"tenant", t, m.quotas.Tenant}} {
		switch {
		case m.exceeds(c.use.messages, now, c.rate.Messages, 1):
			e = Excess{Of: c.of, What: "messages", Limit: c.rate.Messages}
		case m.exceeds(c.use.bytes, now, c.rate.Bytes, cost):
			e = Excess{Of: c.of, What: "bytes", Limit: c.rate.Bytes}
		default:
			continue
		}
		if p.lastFinding.IsZero() || now.Sub(p.lastFinding) >= findingWindow {
			p.lastFinding, e.First = now, true
		}
		return e, false
	}
	p.add(now, m.quotas.Publisher, cost)
	t.add(now, m.quotas.Tenant, cost)
	return Excess{}, true
}

func usageOf[K comparable](m map[K]*quotaUsage, k K) *quotaUsage {
	u := m[k]
	if u == nil {
		u = &quotaUsage{}
		m[k] = u
	}
	return u
}

// exceeds reports whether n more exceed the rate. A message larger than the whole burst is
// accepted when the bucket is empty.
func (m *Meter) exceeds(b tokenBucket, now time.Time, rate, n int) bool {
	if rate <= 0 {
		return false
	}
	level := b.levelAfter(now, rate, n)
	return level > float64(rate)*m.quotas.Burst.Seconds() && level > float64(n)
}

func (u *quotaUsage) add(now time.Time, r Rate, cost int) {
	u.messages = tokenBucket{u.messages.levelAfter(now, r.Messages, 1), now}
	u.bytes = tokenBucket{u.bytes.levelAfter(now, r.Bytes, cost), now}
}

// String describes the limit to the publisher.
func (e Excess) String() string {
	return fmt.Sprintf("the %s's quota of %d %s per second is exceeded; send more slowly, or ask the operator for more", e.Of, e.Limit, e.What)
}

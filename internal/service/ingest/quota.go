package ingest

import (
	"bytes"
	"sync"
	"time"
)

// Rate is what may come in each second; zero is no limit.
type Rate struct {
	Messages int
	Bytes    int // see Cost
}

// Quotas are limits of a tenant and of each of its publishers.
type Quotas struct {
	Tenant, Publisher Rate
	// Burst is how much of a second's rate may come at once, as a time: a limit of
	// 100 each second with a burst of 10 s takes 1,000 at once after a pause.
	Burst time.Duration
}

// valueCost is what a value of a document costs beside its bytes, in bytes. The
// correlator and the auditor look at every value of an event, which takes them as
// long as to copy some hundred bytes.
const valueCost = 128

// Cost is what a body counts as against a limit of bytes: its size, and for each
// comma, of which a document has about as many as values, valueCost more.
func Cost(body []byte) int { return len(body) + valueCost*bytes.Count(body, []byte{','}) }

// tokenBucket is a token bucket that counts up: level is what was taken and has not
// run out of it again.
type tokenBucket struct {
	level float64
	at    time.Time
}

// levelAfter is the level once n more are taken.
func (b tokenBucket) levelAfter(now time.Time, rate, n int) float64 {
	level := b.level - now.Sub(b.at).Seconds()*float64(rate)
	return max(level, 0) + float64(n)
}

// quotaUsage is what one tenant or publisher has taken.
type quotaUsage struct {
	messages, bytes tokenBucket
	lastFinding     time.Time // of a publisher: when its last finding was made
}

// Meter applies quotas. It is safe for concurrent use; its memory is one entry
// for each authenticated publisher.
type Meter struct {
	quotas Quotas

	mu         sync.Mutex
	tenants    map[string]*quotaUsage
	publishers map[publisherKey]*quotaUsage
}

type publisherKey struct{ tenant, name string }

// NewMeter makes a Meter of which nothing is taken.
func NewMeter(q Quotas) *Meter {
	return &Meter{quotas: q, tenants: map[string]*quotaUsage{}, publishers: map[publisherKey]*quotaUsage{}}
}

// Excess says which limit a message exceeds.
type Excess struct {
	Of    string // "publisher" or "tenant"
	What  string // "messages" or "bytes"
	Limit int    // each second
	First bool   // the first of the publisher's in this window: time for a finding
}

// findingWindow is how long a publisher's excess is told by one finding.
const findingWindow = 10 * time.Minute

// Take counts a message in, all or nothing. ok is false when it exceeds a limit,
// and then nothing is counted.
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

// exceeds reports whether n more are too many. A message larger than the whole
// burst is taken when nothing else was.
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

package admitter

import (
	"crypto/sha256"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// maxTrackedCalls bounds how many ids with a closed occurrence are remembered,
// at some 50 bytes each.
const maxTrackedCalls = 100_000

// occurrences remembers, for ids that are used more than once, which occurrence
// is open. It follows the correlator's call records and forgets the ids that were
// not heard of for the longest time, half of them at once: what it says is a
// convenience for readers of decisions; the call record is what counts
// (architecture section 4).
type occurrences struct {
	mu         sync.Mutex
	limit      int
	young, old map[callKey]int32 // the last closed occurrence
}

// callKey stands for tenant, source, session and id, of whatever length those are.
type callKey [16]byte

func callKeyOf(tenant, source, session, id string) (k callKey) {
	var text []byte
	for _, s := range [...]string{tenant, source, session, id} {
		text = strconv.AppendInt(text, int64(len(s)), 10)
		text = append(append(text, ':'), s...)
	}
	sum := sha256.Sum256(text)
	copy(k[:], sum[:])
	return k
}

func newOccurrences(limit int) *occurrences {
	return &occurrences{limit: limit, young: map[callKey]int32{}}
}

// current is the occurrence a request asks about, 0 when it has no call id.
func (o *occurrences) current(d events.Decision) int {
	if d.ToolCallID == "" {
		return 0
	}
	k := callKeyOf(d.Tenant, d.Source, d.Session, d.ToolCallID)
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.last(k)) + 1
}

func (o *occurrences) last(k callKey) int32 { return max(o.young[k], o.old[k]) }

// closed notes that an occurrence has reached its end.
func (o *occurrences) closed(c events.Call) {
	k := callKeyOf(c.Tenant, c.Source, c.Session, c.ToolCallID)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.young[k] = max(o.last(k), int32(min(c.Occurrence, 1<<30)))
	if len(o.young) > o.limit/2 {
		o.young, o.old = map[callKey]int32{}, o.young
	}
}

// followCalls feeds the correlator's call records to the tracker.
func (s *service) followCalls(nc *nats.Conn) error {
	_, err := nc.Subscribe(s.space.All(subject.Calls), func(m *nats.Msg) {
		c, err := events.DecodeRecord[events.Call](m.Data)
		if err == nil && c.State != events.CallOpen && c.ToolCallID != "" {
			s.calls.closed(c)
		}
	})
	return err
}

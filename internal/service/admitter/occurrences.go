package admitter

import (
	"crypto/sha256"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// maxTrackedCalls bounds how many call ids with a closed occurrence are remembered, at some 50
// bytes each.
const maxTrackedCalls = 100_000

// occurrenceTracker remembers the last closed occurrence of each call id, from the correlator's call
// records: a request with that id asks about the next one. When it is full it forgets the half that was updated
// least recently. Its result is a convenience for readers of decisions; the call record is
// authoritative (docs/architecture.md, Identity of a call).
type occurrenceTracker struct {
	mu               sync.Mutex
	limit            int
	recent, previous map[callKey]int32 // the last closed occurrence
}

// callKey is a fixed-size key of tenant, source, session and call id.
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

func newOccurrenceTracker(limit int) *occurrenceTracker {
	return &occurrenceTracker{limit: limit, recent: map[callKey]int32{}}
}

// currentOccurrence is the occurrence that a request asks about, 0 without a call id.
func (o *occurrenceTracker) currentOccurrence(d events.Decision) int {
	if d.ToolCallID == "" {
		return 0
	}
	k := callKeyOf(d.Tenant, d.Source, d.Session, d.ToolCallID)
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(o.lastClosed(k)) + 1
}

func (o *occurrenceTracker) lastClosed(k callKey) int32 { return max(o.recent[k], o.previous[k]) }

// noteClosed notes that an occurrence has ended.
func (o *occurrenceTracker) noteClosed(c events.Call) {
	k := callKeyOf(c.Tenant, c.Source, c.Session, c.ToolCallID)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recent[k] = max(o.lastClosed(k), int32(min(c.Occurrence, 1<<30)))
	if len(o.recent) > o.limit/2 {
		o.recent, o.previous = map[callKey]int32{}, o.recent
	}
}

// followCalls passes the correlator's call records to the tracker.
func (s *service) followCalls(nc *nats.Conn) error {
	_, err := nc.Subscribe(s.space.All(subject.Calls), func(m *nats.Msg) {
		c, err := events.DecodeRecord[events.Call](m.Data)
		if err == nil && c.State != events.CallOpen && c.ToolCallID != "" {
			s.calls.noteClosed(c)
		}
	})
	return err
}

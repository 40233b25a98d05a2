package admitter

import (
	"container/list"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// maxTrackedCalls bounds how many ids with a closed occurrence are remembered.
const maxTrackedCalls = 100_000

// occurrences remembers, for ids that are used more than once, which occurrence
// is open. It follows the correlator's call records and forgets the least
// recently used id: what it says is a convenience for readers of decisions; the
// call record is what counts (architecture section 4).
type occurrences struct {
	mu    sync.Mutex
	limit int
	order *list.List
	byKey map[callKey]*list.Element
}

type callKey struct{ tenant, source, session, id string }

type closedCall struct {
	key  callKey
	last int
}

func newOccurrences(limit int) *occurrences {
	return &occurrences{limit: limit, order: list.New(), byKey: map[callKey]*list.Element{}}
}

// current is the occurrence a request asks about, 0 when it has no call id.
func (o *occurrences) current(d events.Decision) int {
	if d.ToolCallID == "" {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, seen := o.byKey[callKey{d.Tenant, d.Source, d.Session, d.ToolCallID}]; seen {
		return e.Value.(*closedCall).last + 1
	}
	return 1
}

// closed notes that an occurrence has reached its end.
func (o *occurrences) closed(c events.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := callKey{c.Tenant, c.Source, c.Session, c.ToolCallID}
	if e, seen := o.byKey[key]; seen {
		call := e.Value.(*closedCall)
		call.last = max(call.last, c.Occurrence)
		o.order.MoveToFront(e)
		return
	}
	o.byKey[key] = o.order.PushFront(&closedCall{key, c.Occurrence})
	if o.order.Len() > o.limit {
		oldest := o.order.Back()
		delete(o.byKey, o.order.Remove(oldest).(*closedCall).key)
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

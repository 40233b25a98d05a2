package auditor

import (
	"fmt"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// What comes in small portions while a batch is being stored becomes one batch,
// of as many records as a batch may have.
func TestMessagesWaitWhileABatchIsStored(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	for i := range 3 {
		n.Publish(servicetest.Runtime, session(t, fmt.Sprint("s", i))...)
	}
	p, through := startProxy(t, dsn, "nothing")
	f := flags(n, through, 5)
	a := standing(t, f)
	log := n.Log()
	if len(log) < 12 {
		t.Fatalf("the log has %d messages", len(log))
	}
	servicetest.OK(t, auditAll(t, a, log[:2]))
	p.away(true)
	for _, at := range []int{2, 3, 4, 6} { // the first of them is launched, the others wait
		servicetest.OK(t, a.collectMessages(t.Context(), log[at:map[int]int{2: 3, 3: 4, 4: 6, 6: 7}[at]]))
	}
	if !a.isStoring() || a.tree.Size() != 3 || len(a.pending.msgs) != 4 {
		t.Errorf("in flight: %v; records of %d messages, %d wait", a.isStoring(), a.tree.Size(), len(a.pending.msgs))
	}
	p.away(false)
	servicetest.OK(t, a.collectMessages(t.Context(), log[7:12])) // one fills the batch; what is left waits or is a batch of its own
	if size := a.tree.Size(); size != 8 && size != 12 {
		t.Errorf("records of %d messages", size)
	}
	servicetest.OK(t, a.collectMessages(t.Context(), log[12:]))
	servicetest.OK(t, a.handleIdle(t.Context()))
	if len(a.pending.msgs) != 0 || a.pending.bytes != 0 {
		t.Errorf("%d messages still wait", len(a.pending.msgs))
	}
	holds(t, n, dsn)
}

package auditor

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
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
	if !a.store.isStoring() || a.tree.Size() != 3 || len(a.pending.msgs) != 4 {
		t.Errorf("in flight: %v; records of %d messages, %d wait", a.store.isStoring(), a.tree.Size(), len(a.pending.msgs))
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

// What waits is measured with its headers: 25,000 events of a few bytes can have 64 KB of them each.
func TestHeadersOfWaitingMessagesCount(t *testing.T) {
	var w pendingMessages
	w.add([]events.LogMessage{{Subject: "s", Body: []byte("{}"), Header: map[string][]string{"ce-a": {"1234", "56"}}}})
	if w.bytes != 13 {
		t.Errorf("%d bytes, want 13", w.bytes)
	}
}

// A batch ends before its records exceed what one insert may have, and the next one is chained to it.
func TestABatchIsCutByTheBytesOfItsRecords(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, append(session(t, "s1"), session(t, "s2")...)...)
	a := standing(t, flags(n, dsn, 100))
	a.maxText = 4 << 10
	log := n.Log()
	var batches []int
	servicetest.OK(t, a.prepareBatches(t.Context(), log, func(b *batch) error {
		if batches = append(batches, len(b.rows)); len(b.rows) > 1 && b.bytes > a.maxText || len(b.msgs) != len(b.rows) {
			t.Errorf("%d messages: %d records of %d bytes", len(b.msgs), len(b.rows), b.bytes)
		}
		return nil
	}))
	if len(batches) < 3 {
		t.Fatalf("batches of %v records", batches)
	}
	a = standing(t, flags(n, dsn, 100)) // nothing was stored
	servicetest.OK(t, auditAll(t, a, log))
	servicetest.OK(t, a.handleIdle(t.Context()))
	holds(t, n, dsn)
}

// Batches begin at intervals of twice what one takes to store, within bounds, and no further
// apart than checkpoints.
func TestBatchInterval(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ took, checkpoints, want, overdue time.Duration }{
		{0, 2 * time.Second, 500 * ms, 750 * ms},
		{50 * ms, 2 * time.Second, 500 * ms, 750 * ms}, // a machine that stores quickly
		{400 * ms, 2 * time.Second, 800 * ms, 1200 * ms},
		{700 * ms, 2 * time.Second, time.Second, 1500 * ms}, // a busy one
		{300 * ms, 400 * ms, 400 * ms, 600 * ms},
		{time.Minute, time.Minute, time.Second, 1500 * ms}, // ClickHouse was away
	} {
		s := &batchStore{took: c.took, checkpointEvery: c.checkpoints}
		if got, overdue := s.interval(), s.overdueAfter(); got != c.want || overdue != c.overdue {
			t.Errorf("%v to store, checkpoints every %v: %v, overdue after %v, want %v and %v", c.took, c.checkpoints, got, overdue, c.want, c.overdue)
		}
	}
}

// The first messages that are read after a batch wait for what is read next, up to the end of the
// log; a batch that is overdue does not.
func TestMessagesWaitForTheEndOfTheLog(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, session(t, "s1")...)
	f := flags(n, dsn, 100)
	f.CheckpointEvery = time.Hour
	a := standing(t, f)
	log := n.Log()
	servicetest.OK(t, auditAll(t, a, log[:2]))
	a.store.started = time.Now().Add(time.Hour) // so that no batch is overdue while this test runs
	servicetest.OK(t, a.collectMessages(t.Context(), log[2:3]))
	if len(a.pending.msgs) != 1 || a.tree.Size() != 2 {
		t.Errorf("%d messages wait, records of %d were made", len(a.pending.msgs), a.tree.Size())
	}
	a.store.started = time.Time{}
	servicetest.OK(t, a.collectMessages(t.Context(), log[3:4]))
	if len(a.pending.msgs) != 0 || a.tree.Size() != 4 {
		t.Errorf("overdue: %d messages wait, records of %d were made", len(a.pending.msgs), a.tree.Size())
	}
	servicetest.OK(t, a.collectMessages(t.Context(), log[4:]))
	servicetest.OK(t, a.handleIdle(t.Context()))
	holds(t, n, dsn)
}

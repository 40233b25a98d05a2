package correlator

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// someLog has messages that outputs can come from.
func someLog(t *testing.T) *servicetest.NATS {
	t.Helper()
	n := servicetest.Start(t, streams.Shard{})
	for i := range 12 {
		n.Publish(servicetest.Runtime, pre(i))
	}
	return n
}

// put adds outputs that wait, of a body each, as if message seq had given them.
func (w *worker) put(seq uint64, bodies ...[]byte) {
	for i, b := range bodies {
		out := correlation.Output{Subject: "gov.findings.acme.low.s", Type: events.TypeFinding, ID: fmt.Sprint(seq, i), Body: b}
		w.pending = append(w.pending, pendingOutput{out, seq, i, time.Now()})
	}
	w.head = seq
}

// fly waits for the write that is under way.
func (w *worker) fly(t *testing.T) error {
	t.Helper()
	select {
	case l := <-w.writes.committing.acknowledgement():
		return w.handleResult(t.Context(), l)
	case <-time.After(servicetest.Guard):
		t.Fatal("the write does not land")
		return nil
	}
}

// bodies are those of the outputs in the log, which must be accounted for by its cursors.
func bodies(t *testing.T, n *servicetest.NATS) (list string) {
	t.Helper()
	log := n.Log()
	checkCursors(t, log)
	for _, o := range outputs(log) {
		list += o.body
	}
	return list
}

func one(s string) []byte { return []byte(s) }

// Outputs that come while a write is under way are sent at once and stored with
// the next cursor, together with what comes later; each is stored once, in order.
func TestOutputsAreSentBeforeTheirCursor(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	w.put(1, one("a"), one("b"))
	w.writes.commit(t.Context(), w.nextOutgoing)
	w.put(2, one("c"))
	w.writes.stage(t.Context(), w.pending)
	if w.writes.staged == nil || w.writes.staged.sent != 1 {
		t.Fatalf("staged %+v, want the one output that is not under way", w.writes.staged)
	}
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "ab" || w.cursor.Consumed != 1 {
		t.Fatalf("%q is stored up to %d: what is staged has no cursor yet", got, w.cursor.Consumed)
	}
	w.put(3, one("d"))
	servicetest.Eventually(t, "the goroutine takes more", func() bool { return len(w.writes.staged.parts) == 0 })
	w.writes.stage(t.Context(), w.pending)
	w.put(4, one("e"))
	w.writes.commit(t.Context(), w.nextOutgoing)
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "abcde" || w.cursor.Consumed != 4 || w.cursor.Outputs != 3 || len(w.pending) != 0 {
		t.Errorf("%q is stored, cursor %+v, %d wait", got, w.cursor, len(w.pending))
	}
}

// What is staged behind a write that could not take all of its outputs begins at
// the wrong place, and is given up.
func TestStagedBehindAWriteThatWasCut(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	large := func(s string) []byte { return bytes.Repeat([]byte(s), 5<<20) }
	w.put(10, large("a"), large("b"))
	w.writes.commit(t.Context(), w.nextOutgoing)
	w.put(11, one("c"))
	w.writes.stage(t.Context(), w.pending)
	servicetest.OK(t, w.fly(t))
	if w.writes.staged != nil || len(w.pending) != 2 || w.cursor.Consumed != 9 || w.cursor.Partial != 1 {
		t.Fatalf("staged %v, %d outputs wait, cursor %+v", w.writes.staged, len(w.pending), w.cursor)
	}
	for w.writes.stage(t.Context(), w.pending); len(w.pending) > 0; {
		w.writes.commit(t.Context(), w.nextOutgoing)
		servicetest.OK(t, w.fly(t))
	}
	if got := bodies(t, n); got != string(large("a"))+string(large("b"))+"c" {
		t.Errorf("%d bytes are stored", len(got))
	}
}

// However much is staged, a batch and its cursor are no more than the server takes.
func TestMoreThanABatchIsStaged(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	want := ""
	for seq := uint64(1); seq <= 5; seq++ {
		for i := range 500 {
			s := fmt.Sprint(seq, ":", i, " ")
			w.put(seq, one(s))
			w.pending[len(w.pending)-1].n, want = i, want+s
		}
		w.writes.stage(t.Context(), w.pending)
	}
	for len(w.pending) > 0 {
		w.writes.commit(t.Context(), w.nextOutgoing)
		w.writes.stage(t.Context(), w.pending)
		servicetest.OK(t, w.fly(t))
	}
	if got := bodies(t, n); got != want {
		t.Errorf("%d bytes are stored, want %d", len(got), len(want))
	}
}

// Of two writers one stores, staged or not; the other leaves nothing.
func TestStagedByAWriterThatIsFencedOff(t *testing.T) {
	n := someLog(t)
	w, other := alone(t, n, long, "w"), alone(t, n, long, "other")
	w.put(1, one("a"))
	w.writes.commit(t.Context(), w.nextOutgoing)
	servicetest.OK(t, w.fly(t))
	w.put(2, one("b"))
	w.writes.stage(t.Context(), w.pending)
	servicetest.OK(t, other.restoreCursor(t.Context()))
	other.put(2, one("b"))
	other.writes.commit(t.Context(), other.nextOutgoing)
	servicetest.OK(t, other.fly(t))
	w.writes.commit(t.Context(), w.nextOutgoing)
	w.put(3, one("c"))
	w.writes.stage(t.Context(), w.pending)
	if err := w.fly(t); !errors.Is(err, daemon.ErrFenced) || w.writes.staged != nil {
		t.Errorf("%v, staged %v", err, w.writes.staged)
	}
	w.writes.await()
	if got := bodies(t, n); got != "ab" {
		t.Errorf("%q is stored", got)
	}
}

// A predecessor that was faster has written some of what is staged; the rest is
// written once.
func TestStagedWhenThePredecessorWasFaster(t *testing.T) {
	n := someLog(t)
	w, before := alone(t, n, long, "w"), alone(t, n, long, "before")
	for _, x := range []*worker{w, before} {
		x.put(1, one("a"))
	}
	before.writes.commit(t.Context(), before.nextOutgoing)
	servicetest.OK(t, before.fly(t))
	w.writes.commit(t.Context(), w.nextOutgoing)
	w.put(2, one("b"))
	w.writes.stage(t.Context(), w.pending)
	servicetest.OK(t, w.fly(t)) // fenced, but this one has not written yet: it follows
	if w.writes.staged != nil || len(w.pending) != 1 {
		t.Fatalf("staged %v, %d wait", w.writes.staged, len(w.pending))
	}
	w.writes.stage(t.Context(), w.pending)
	w.writes.commit(t.Context(), w.nextOutgoing)
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "ab" {
		t.Errorf("%q is stored", got)
	}
}

// The server goes away with what is staged: it is sent again, at once.
func TestStagedWhenTheServerRestarts(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	var warnings bytes.Buffer
	w.env.Log = zerolog.New(&warnings)
	w.put(1, one("a"), one("b"))
	w.writes.stage(t.Context(), w.pending)
	servicetest.Eventually(t, "it is sent", func() bool { return len(w.writes.staged.parts) == 0 })
	n.Stop()
	n.Restart()
	servicetest.Eventually(t, "the connection is back", func() bool { return w.nc.Status() == nats.CONNECTED })
	w.put(2, one("c"))
	w.writes.commit(t.Context(), w.nextOutgoing)
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "abc" {
		t.Errorf("%q is stored", got)
	}
	if warnings.Len() > 0 { // neither a warning nor a delay is needed
		t.Error(warnings.String())
	}
}

package correlator

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

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
	case l := <-w.writing:
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

// Outputs that come while a write is under way are stored with the next cursor,
// together with what comes later; each is stored once, in order.
func TestOutputsDuringAWrite(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	w.put(1, one("a"), one("b"))
	w.startWrite(t.Context(), w.nextOutgoing())
	w.put(2, one("c"))
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "ab" || w.cursor.Consumed != 1 {
		t.Fatalf("%q is stored up to %d", got, w.cursor.Consumed)
	}
	w.put(3, one("d"))
	w.put(4, one("e"))
	w.startWrite(t.Context(), w.nextOutgoing())
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "abcde" || w.cursor.Consumed != 4 || w.cursor.Outputs != 3 || len(w.pending) != 0 {
		t.Errorf("%q is stored, cursor %+v, %d wait", got, w.cursor, len(w.pending))
	}
}

// A write that could not take all of its outputs is followed by one of the rest.
func TestAWriteThatWasCut(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	large := func(s string) []byte { return bytes.Repeat([]byte(s), 5<<20) }
	w.put(10, large("a"), large("b"))
	w.startWrite(t.Context(), w.nextOutgoing())
	w.put(11, one("c"))
	servicetest.OK(t, w.fly(t))
	if len(w.pending) != 2 || w.cursor.Consumed != 9 || w.cursor.Partial != 1 {
		t.Fatalf("%d outputs wait, cursor %+v", len(w.pending), w.cursor)
	}
	for len(w.pending) > 0 {
		w.startWrite(t.Context(), w.nextOutgoing())
		servicetest.OK(t, w.fly(t))
	}
	if got := bodies(t, n); got != string(large("a"))+string(large("b"))+"c" {
		t.Errorf("%d bytes are stored", len(got))
	}
}

// However much waits, a batch and its cursor are no more than the server takes.
func TestMoreThanABatchWaits(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	want := ""
	for seq := uint64(1); seq <= 5; seq++ {
		for i := range 500 {
			s := fmt.Sprint(seq, ":", i, " ")
			w.put(seq, one(s))
			w.pending[len(w.pending)-1].n, want = i, want+s
		}
	}
	for len(w.pending) > 0 {
		w.startWrite(t.Context(), w.nextOutgoing())
		servicetest.OK(t, w.fly(t))
	}
	if got := bodies(t, n); got != want {
		t.Errorf("%d bytes are stored, want %d", len(got), len(want))
	}
}

// Of two writers one stores; the other leaves nothing.
func TestAWriterThatIsFencedOff(t *testing.T) {
	n := someLog(t)
	w, other := alone(t, n, long, "w"), alone(t, n, long, "other")
	w.put(1, one("a"))
	w.startWrite(t.Context(), w.nextOutgoing())
	servicetest.OK(t, w.fly(t))
	w.put(2, one("b"))
	servicetest.OK(t, other.restoreCursor(t.Context()))
	other.put(2, one("b"))
	other.startWrite(t.Context(), other.nextOutgoing())
	servicetest.OK(t, other.fly(t))
	w.startWrite(t.Context(), w.nextOutgoing())
	w.put(3, one("c"))
	if err := w.fly(t); !errors.Is(err, daemon.ErrFenced) {
		t.Error(err)
	}
	if got := bodies(t, n); got != "ab" {
		t.Errorf("%q is stored", got)
	}
}

// A predecessor that was faster has written some of what waits; the rest is
// written once.
func TestThePredecessorWasFaster(t *testing.T) {
	n := someLog(t)
	w, before := alone(t, n, long, "w"), alone(t, n, long, "before")
	for _, x := range []*worker{w, before} {
		x.put(1, one("a"))
	}
	before.startWrite(t.Context(), before.nextOutgoing())
	servicetest.OK(t, before.fly(t))
	w.startWrite(t.Context(), w.nextOutgoing())
	w.put(2, one("b"))
	servicetest.OK(t, w.fly(t)) // fenced, but this one has not written yet: it follows
	if len(w.pending) != 1 {
		t.Fatalf("%d wait", len(w.pending))
	}
	w.startWrite(t.Context(), w.nextOutgoing())
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "ab" {
		t.Errorf("%q is stored", got)
	}
}

// The server goes away during a write: it is stored once, when the server is back.
func TestTheServerRestartsDuringAWrite(t *testing.T) {
	n := someLog(t)
	w := alone(t, n, long, "w")
	w.put(1, one("a"), one("b"))
	n.Stop()
	w.startWrite(t.Context(), w.nextOutgoing())
	w.put(2, one("c"))
	n.Restart()
	servicetest.OK(t, w.fly(t))
	w.startWrite(t.Context(), w.nextOutgoing())
	servicetest.OK(t, w.fly(t))
	if got := bodies(t, n); got != "abc" {
		t.Errorf("%q is stored", got)
	}
}

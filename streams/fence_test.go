package streams

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

const testCursor = "gov.control.GOV.cursor"

func calls(from, n int) (msgs []Msg) {
	for i := from; i < from+n; i++ {
		msgs = append(msgs, Msg{Subject: "gov.calls.acme.open.s", Body: []byte(fmt.Sprint(i))})
	}
	return msgs
}

// What is staged piece by piece, while another batch holds the fence, is stored
// with the commit, in order and in one piece; before that nothing of it is.
func TestFencedBatchIsStagedBeforeTheFenceIsKnown(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	first, second := NewFencedBatch(nc, DefaultShard, testCursor), NewFencedBatch(nc, DefaultShard, testCursor)
	defer first.Close()
	defer second.Close()
	ok(t, first.Stage(calls(0, 2)))
	ok(t, second.Stage(calls(2, 3)))
	ok(t, second.Stage(nil))
	ok(t, second.Stage(calls(5, 1)))
	ok(t, StoreAll(ctx(t), f.conn("admitter"), events64("runtime", 1)))
	if st := f.state(); st.LastSeq != 1 {
		t.Fatalf("%d messages are stored before the commit", st.LastSeq)
	}
	fence, err := first.Commit(ctx(t), Msg{Subject: testCursor}, 0)
	ok(t, err)
	last, err := second.Commit(ctx(t), Msg{Subject: testCursor}, fence)
	ok(t, err)
	if fence != 4 || last != 9 {
		t.Fatalf("cursors at %d and %d, want 4 and 9", fence, last)
	}
	var got string
	for _, m := range f.readAll()[1:] {
		got += string(m.Body) + ";"
	}
	if got != "0;1;;2;3;4;5;;" {
		t.Errorf("the log has %s", got)
	}
}

// What is staged and not committed, or fenced off, leaves nothing.
func TestFencedBatchLeavesNothing(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	_, err := AppendFenced(ctx(t), nc, DefaultShard, append(calls(0, 2), Msg{Subject: testCursor}), Fence{testCursor, 0})
	ok(t, err)
	given := NewFencedBatch(nc, DefaultShard, testCursor)
	ok(t, given.Stage(calls(0, 20)))
	given.Close()
	for _, stale := range []uint64{0, 1, 99} {
		b := NewFencedBatch(nc, DefaultShard, testCursor)
		ok(t, b.Stage(calls(0, 3)))
		if _, err := b.Commit(ctx(t), Msg{Subject: testCursor}, stale); !errors.Is(err, ErrFenced) || !errors.Is(err, ErrRefused) {
			t.Errorf("fence at %d: %v, want ErrFenced", stale, err)
		}
		b.Close()
	}
	if st := f.state(); st.LastSeq != 3 {
		t.Errorf("%d messages, want 3", st.LastSeq)
	}
}

// The server forgets what was staged when it stops, and the connection may lose
// it: then the commit is refused, and nothing is stored.
func TestFencedBatchWhenTheServerRestarts(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	b, unsent := NewFencedBatch(nc, DefaultShard, testCursor), NewFencedBatch(nc, DefaultShard, testCursor)
	defer b.Close()
	defer unsent.Close()
	ok(t, b.Stage(calls(0, 3)))
	ok(t, nc.Flush())
	f.stop()
	eventually(t, func() bool { return nc.Status() != nats.CONNECTED })
	if err := unsent.Stage(calls(0, 1)); !errors.Is(err, ErrRefused) {
		t.Errorf("staged without a server: %v", err)
	}
	f.restart()
	eventually(t, func() bool { return nc.Status() == nats.CONNECTED })
	for name, b := range map[string]*FencedBatch{"staged before": b, "not sent": unsent} {
		if _, err := b.Commit(ctx(t), Msg{Subject: testCursor}, 0); !errors.Is(err, ErrRefused) || errors.Is(err, ErrFenced) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
	if st := f.state(); st.LastSeq != 0 {
		t.Errorf("%d messages are stored", st.LastSeq)
	}
}

func TestFencedBatchRefuses(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	for name, b := range map[string]struct {
		stage [][]Msg
		last  string
		want  error
	}{
		"the fence's subject is staged":   {[][]Msg{calls(0, 1), {{Subject: testCursor}}}, testCursor, ErrRefused},
		"the last one is on another":      {[][]Msg{calls(0, 1)}, "gov.calls.acme.open.s", ErrRefused},
		"too many in one piece":           {[][]Msg{calls(0, MaxBatch)}, testCursor, ErrTooLarge},
		"too many in two pieces":          {[][]Msg{calls(0, MaxBatch/2), calls(0, MaxBatch/2)}, testCursor, ErrTooLarge},
		"a header that steers the server": {[][]Msg{{{Subject: "gov.calls.acme.open.s", Header: map[string][]string{headerBatchCommit: {"1"}}}}}, testCursor, ErrReservedHeader},
	} {
		batch := NewFencedBatch(nc, DefaultShard, testCursor)
		for _, msgs := range b.stage {
			_ = batch.Stage(msgs) // Commit repeats it
		}
		if _, err := batch.Commit(ctx(t), Msg{Subject: b.last}, 0); !errors.Is(err, ErrRefused) || !errors.Is(err, b.want) {
			t.Errorf("%s: %v, want %v", name, err, b.want)
		}
		batch.Close()
	}
	if st := f.state(); st.LastSeq != 0 {
		t.Errorf("%d messages are stored", st.LastSeq)
	}
	// As many as fit, in pieces.
	batch := NewFencedBatch(nc, DefaultShard, testCursor)
	defer batch.Close()
	ok(t, batch.Stage(calls(0, MaxBatch/2)))
	ok(t, batch.Stage(calls(0, MaxBatch/2-1)))
	if last, err := batch.Commit(ctx(t), Msg{Subject: testCursor}, 0); err != nil || last != MaxBatch {
		t.Errorf("cursor at %d, %v", last, err)
	}
}

package streams

import (
	"errors"
	"fmt"
	"testing"
)

const testCursor = "gov.control.GOV.cursor"

func calls(from, n int) (msgs []Msg) {
	for i := from; i < from+n; i++ {
		msgs = append(msgs, Msg{Subject: "gov.calls.acme.open.s", Body: []byte(fmt.Sprint(i))})
	}
	return msgs
}

// What is fenced off leaves nothing.
func TestFencedOffLeavesNothing(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	batch := append(calls(0, 2), Msg{Subject: testCursor})
	_, err := AppendFenced(ctx(t), nc, DefaultShard, batch, Fence{testCursor, 0})
	ok(t, err)
	for _, stale := range []uint64{0, 1, 99} {
		if _, err := AppendFenced(ctx(t), nc, DefaultShard, batch, Fence{testCursor, stale}); !errors.Is(err, ErrFenced) || !errors.Is(err, ErrRefused) {
			t.Errorf("fence at %d: %v, want ErrFenced", stale, err)
		}
	}
	if st := f.state(); st.LastSeq != 3 {
		t.Errorf("%d messages, want 3", st.LastSeq)
	}
}

func TestAppendFencedRefuses(t *testing.T) {
	f := start(t)
	nc := f.conn("correlator")
	for name, b := range map[string]struct {
		msgs []Msg
		last string
		want error
	}{
		"the fence's subject before the last": {append(calls(0, 1), Msg{Subject: testCursor}), testCursor, ErrRefused},
		"the last one is on another":          {calls(0, 1), "gov.calls.acme.open.s", ErrRefused},
		"too many":                            {calls(0, MaxBatch), testCursor, ErrTooLarge},
		"a header that steers the server":     {[]Msg{{Subject: "gov.calls.acme.open.s", Header: map[string][]string{headerBatchCommit: {"1"}}}}, testCursor, ErrReservedHeader},
	} {
		if _, err := AppendFenced(ctx(t), nc, DefaultShard, append(b.msgs, Msg{Subject: b.last}), Fence{testCursor, 0}); !errors.Is(err, ErrRefused) || !errors.Is(err, b.want) {
			t.Errorf("%s: %v, want %v", name, err, b.want)
		}
	}
	if st := f.state(); st.LastSeq != 0 {
		t.Errorf("%d messages are stored", st.LastSeq)
	}
	// As many as fit.
	if seqs, err := AppendFenced(ctx(t), nc, DefaultShard, append(calls(0, MaxBatch-1), Msg{Subject: testCursor}), Fence{testCursor, 0}); err != nil || seqs[len(seqs)-1] != MaxBatch {
		t.Errorf("cursor at %v, %v", seqs, err)
	}
}

package streams

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream is read from its end, over the gaps that deletions leave.
func TestMessagesBack(t *testing.T) {
	f := flatServer(t, "")
	const name = "MESSAGES"
	js := f.js(f.conn("provisioner"))
	s, err := js.CreateStream(ctx(t), jetstream.StreamConfig{Name: name, Subjects: []string{"m"}})
	ok(t, err)
	back := func() (seqs []uint64) {
		for m, err := range MessagesBack(ctx(t), js, name) {
			ok(t, err)
			seqs = append(seqs, m.Seq)
		}
		return seqs
	}
	if got := back(); len(got) != 0 {
		t.Errorf("an empty stream has %v", got)
	}
	const n = 2*prefetchMessages + 5
	for range n {
		_, err := js.Publish(ctx(t), "m", nil)
		ok(t, err)
	}
	gaps := []uint64{1, 7, n - prefetchMessages, n}
	var want []uint64
	for seq := uint64(1); seq <= n; seq++ {
		if slices.Contains(gaps, seq) {
			ok(t, s.DeleteMsg(ctx(t), seq))
		} else {
			want = append(want, seq)
		}
	}
	slices.Reverse(want)
	if got := back(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for m, err := range MessagesBack(ctx(t), js, name) {
		if ok(t, err); m.Seq != want[0] {
			t.Errorf("the newest is %d", m.Seq)
		}
		break
	}
}

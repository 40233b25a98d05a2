package correlation

import (
	"testing"

	"github.com/countersign-dev/countersign/events/digest"
)

// Of a session whose key is not ready one event is read in vain, not all of them.
func TestMissingKey(t *testing.T) {
	l := newLedger(t)
	ready := false
	key := digest.NewSession([]byte("0123456789abcdef0123456789abcdef"))
	l.opts.SessionKey = func(_, session string) (*digest.Session, bool) { return key, ready || session != "s1" }
	for i := range 4 {
		l.event(pre(i))
	}
	l.event(set(pre(9), "session_id", "s2"))
	d := New(l.opts).NewDecoder()
	for _, m := range l.msgs[1:] {
		in := d.Decode(m)
		if _, session, wants := in.Wants(); wants != (session == "s1") {
			t.Errorf("%s: wants %v", session, wants)
		}
	}
	if d.flatReads != 2 {
		t.Errorf("%d events were read, want one of each session", d.flatReads)
	}
	ready = true
	for _, m := range l.msgs[1:] {
		if _, _, wants := d.Decode(m).Wants(); wants {
			t.Errorf("sequence %d still wants its key", m.Seq)
		}
	}
	if d.flatReads != 7 || len(d.sessionKeyers.missing) > 0 {
		t.Errorf("%d events were read, %d sessions are missing", d.flatReads, len(d.sessionKeyers.missing))
	}
}

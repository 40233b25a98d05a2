package correlator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A standby, and one that begins where another left off, says it when the one that
// wrote finds under other settings, once; the same settings, said or usual, are nothing
// to tell.
func TestOtherSettingsAreSaid(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	active := alone(t, n, long, "active")
	write := func(name string) {
		n.Publish(servicetest.Runtime, session(t, name)...)
		log := n.Log()
		for _, m := range log[active.head:] {
			active.feedOne(t, m)
		}
		servicetest.OK(t, active.flush(t.Context()))
	}
	write("sess-0001")
	for i, c := range []struct {
		change func(*Flags)
		says   string
	}{
		{func(*Flags) {}, ""},
		{func(f *Flags) { f.MaxCalls, f.MaxSessions = 262_144, 65_536 }, ""},
		{func(f *Flags) { f.MissingAfter *= 2 }, "--missing-after=2h0m0s"},
		{func(f *Flags) { f.MaxCalls = 1000 }, "--max-calls=1000"},
		{func(f *Flags) { f.MaxSessions = 1000 }, "--max-sessions=1000"},
		{func(f *Flags) { f.NoVerdictOK = true }, "--no-verdict-ok=true"},
	} {
		w := alone(t, n, long, "standby")
		w.cursorSeq, w.role = 0, daemon.RoleStandby
		var text strings.Builder
		w.env.Log = zerolog.New(&text).Level(zerolog.WarnLevel)
		c.change(&w.flags)
		servicetest.OK(t, w.restoreCursor(t.Context()))
		write(fmt.Sprint("sess-", 2000+i))
		for _, m := range n.Log() {
			w.feedOne(t, m)
		}
		if said := strings.Count(text.String(), "other settings"); said > 1 || (said == 1) != (c.says != "") || !strings.Contains(text.String(), c.says) {
			t.Errorf("%s: %s", c.says, text.String())
		}
	}
}

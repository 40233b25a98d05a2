package servicetest

import (
	"strconv"

	"github.com/countersign-dev/countersign/streams"
)

// CheckLinked checks that the log has control records of some kinds, and that each says where the one before is.
func (n *NATS) CheckLinked(kinds ...string) {
	n.tb.Helper()
	js := n.JS(string(streams.RoleAuditor))
	for _, kind := range kinds {
		before := uint64(0)
		for m, err := range streams.EachBySubject(n.tb.Context(), js, streams.DefaultShard, "gov.control."+streams.DefaultShard+"."+kind, 1) {
			OK(n.tb, err)
			if got, want := m.HeaderValue("Nats-Expected-Last-Subject-Sequence"), strconv.FormatUint(before, 10); got != want {
				n.tb.Errorf("the %s record at %d names %q as the one before, want %s", kind, m.Seq, got, want)
			}
			before = m.Seq
		}
		if before == 0 {
			n.tb.Errorf("the log has no %s record", kind)
		}
	}
}

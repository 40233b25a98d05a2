// Package toyprotocol adds the toy protocol of the tests to the stage of evidence: one row in its
// table (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"testing"

	"github.com/countersign-dev/countersign/evidence/internal/protocol"
)

// AddRow adds the row until the test ends. Of an event it keeps {"toy","id","was","run","do","no"}
// and the summary "words"; the diary is never stored.
func AddRow(t testing.TB) {
	keep := map[string]*protocol.MemberRule{"words": {Rule: protocol.KeepSummary}}
	for _, member := range []string{"toy", "id", "was", "run", "do", "no"} {
		keep[member] = &protocol.MemberRule{Rule: protocol.KeepIdentifier}
	}
	protocol.Rows["toy"] = &protocol.Row{
		Keep:        &protocol.MemberRule{Members: keep},
		KeepHeaders: map[string]bool{"toy-id": true},
		NeverStore:  map[string]protocol.Rule{"diary": {Detector: protocol.NeverStore}},
	}
	t.Cleanup(func() { delete(protocol.Rows, "toy") })
}

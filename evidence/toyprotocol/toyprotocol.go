// Package toyprotocol adds the toy protocol of the tests to the stage of evidence: one row in its
// table (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"testing"

	"github.com/countersign-dev/countersign/evidence/internal/protocol"
	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// AddRow adds the row until the test ends. Of an event it keeps {"toy","id","was","run","do","no"}
// and the summary "words"; the diary is never stored.
func AddRow(t testing.TB) {
	keep := map[string]*storable.MemberRule{"words": {Rule: storable.KeepSummary}}
	for _, member := range []string{"toy", "id", "was", "run", "do", "no"} {
		keep[member] = &storable.MemberRule{Rule: storable.KeepIdentifier}
	}
	protocol.Rows["toy"] = &storable.Row{
		Keep:        &storable.MemberRule{Members: keep},
		KeepHeaders: map[string]bool{"toy-id": true},
		NeverStore:  map[string]storable.Rule{"diary": {Detector: storable.NeverStore}},
	}
	t.Cleanup(func() { delete(protocol.Rows, "toy") })
}

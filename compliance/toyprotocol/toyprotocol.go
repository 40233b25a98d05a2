// Package toyprotocol adds the toy protocol of the tests to the stage of compliance: one row in
// its table (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"encoding/json"
	"testing"

	"github.com/countersign-dev/countersign/compliance/internal/protocol"
)

// AddRow adds the row until the test ends. An event is {"was": type, "do": tool, "no": call,
// "by": agent}; a bedtime ends the session; agents have names.
func AddRow(t testing.TB) {
	protocol.Rows["toy"] = protocol.Row{
		Summary: func(body []byte) protocol.Summary {
			var e struct{ Was, Do, No, By string }
			_ = json.Unmarshal(body, &e) // members of other types stay empty
			return protocol.Summary{Type: e.Was, Tool: e.Do, Call: e.No, Agent: e.By}
		},
		SessionEnds: []string{"bedtime"},
		NamedAgents: true,
	}
	t.Cleanup(func() { delete(protocol.Rows, "toy") })
}

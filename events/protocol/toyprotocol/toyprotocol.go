// Package toyprotocol adds the toy protocol of the tests to the stage of events: one row in its
// table (docs/adr/0023). Only tests import it.
package toyprotocol

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// AddRow adds the row until the test ends. An event is {"run": session, "was": type}; a request
// without a verdict is reported.
func AddRow(t testing.TB) {
	protocol.Rows["toy"] = protocol.Row{
		Route: func(raw []byte) (session, typ string, err error) {
			tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
			session, _ = tree["run"].(string)
			typ, _ = tree["was"].(string)
			return session, typ, err
		},
		FailModeEvent: func(f protocol.FailMode) ([]byte, bool, error) {
			return []byte(`{"run":"` + f.Session + `","was":"fail_mode.` + f.Reason + `"}`), true, nil
		},
	}
	t.Cleanup(func() { delete(protocol.Rows, "toy") })
}

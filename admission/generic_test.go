package admission

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// mandates is why a file names AUMP: every protocol's call may be made under a mandate, which is
// a document of AUMP.
const mandates = "mandates are documents of AUMP"

// Generic code of admission, of the client and of their services asks the row of a protocol and
// never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	for _, tc := range []struct {
		root   string
		tables map[string]string
		read   int
	}{
		{".", map[string]string{
			"protocols.go":          "the table",
			"policy/protocols.go":   "the table of policies",
			"publisher/document.go": "manifests are documents of AgentHook",
			"admission.go":          mandates,
			"call/call.go":          mandates,
			"effects.go":            mandates,
			"inputs.go":             mandates,
			"offline.go":            mandates,
			"policy/table/run.go":   mandates,
			"replay/replay.go":      mandates,
		}, 60},
		{"../client", nil, 10},
		{"../internal/service/admitter", map[string]string{
			"confirmations.go":      "the store of AAEP's confirmations",
			"mandates_principal.go": "the endpoint of the principals of AUMP's mandates",
			"mandates.go":           mandates,
			"ledger.go":             mandates,
			"ledger_account.go":     mandates,
			"ledger_calls.go":       mandates,
			"ledger_sweep.go":       mandates,
		}, 20},
		{"../internal/service/ingest", nil, 2},
		{"../internal/service/quota", nil, 1},
	} {
		t.Run(tc.root, func(t *testing.T) { protocoltest.GenericCode(t, tc.root, tc.tables, tc.read) })
	}
}

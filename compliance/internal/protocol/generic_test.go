package protocol

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// Generic code of compliance asks the row of a protocol and never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	protocoltest.GenericCode(t, "../..", map[string]string{
		"internal/protocol/protocol.go": "the table",
		"internal/protocol/aump.go":     "the mandates of one protocol",
		"format/format.go":              "the table of formats",
		"format/fields.go":              "the table of where their values come from",
		"format/aana.go":                "formats of one protocol",
		"format/aana_audit.go":          "formats of one protocol",
		"format/aana_decision.go":       "formats of one protocol",
		"format/aana_tables.go":         "formats of one protocol",
		"format/agenthook.go":           "a format of one protocol",
		"format/aioc.go":                "formats of one protocol",
		"format/aioc_governance.go":     "a format of one protocol",
		"format/aioc_run.go":            "a format of one protocol",
		"format/aump.go":                "a format of one protocol",
		"format/aump_types.go":          "the types of its events",
	}, 40)
}

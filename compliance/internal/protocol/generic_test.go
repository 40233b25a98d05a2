package protocol

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// Generic code of compliance asks the row of a protocol and never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	protocoltest.GenericCode(t, "../..", map[string]string{
		"internal/protocol/protocol.go": "the table",
		"format/format.go":              "the table of formats",
	}, 40)
}

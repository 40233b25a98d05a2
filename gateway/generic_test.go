package gateway

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// Generic code asks the row of a protocol and never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	protocoltest.GenericCode(t, ".", map[string]string{
		"table.go":  "the table",
		"follow.go": "the filters of kinds, of which two are of one protocol",
	}, 5)
}

package conformance

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// Generic code of conformance asks the row of a protocol and never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	protocoltest.GenericCode(t, ".", map[string]string{"protocols.go": "the table"}, 7)
}

package correlate

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// Generic code asks the row of a protocol and never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	protocoltest.GenericCode(t, ".", map[string]string{
		"conformance_declared.go": "AgentHook's manifests",
		"conformance_print.go":    "AgentHook's manifests",
	}, 10)
}

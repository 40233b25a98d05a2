package gateway

import (
	"testing"

	"github.com/countersign-dev/countersign/events/protocol/protocoltest"
)

// Generic code asks the row of a protocol and never its name (docs/adr/0023).
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	protocoltest.GenericCode(t, ".", map[string]string{
		"aaep.go":     "the subscriptions of one protocol",
		"aaep_sse.go": "the subscriptions of one protocol",
		"aaep_ws.go":  "the subscriptions of one protocol",
		"gateway.go":  "starts the bridge of these subscriptions",
		"serve.go":    "serves the endpoints of these subscriptions",
	}, 7)
}

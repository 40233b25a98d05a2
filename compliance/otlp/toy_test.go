package otlp_test

import (
	"testing"

	"github.com/countersign-dev/countersign/compliance/toyprotocol"
)

// A row says whether the agents of a protocol have names.
func TestToyProtocolNamesAgents(t *testing.T) {
	agent := func() (id, name string) {
		d := decision("c", "", "allow")
		d.Protocol = "toy"
		for _, l := range signals(t, d).Logs {
			id, name = id+text(l.Attributes, "gen_ai.agent.id"), name+text(l.Attributes, "gen_ai.agent.name")
		}
		return id, name
	}
	if id, name := agent(); id != "bot" || name != "" {
		t.Errorf("without a row: id %q, name %q", id, name)
	}
	toyprotocol.AddRow(t)
	if id, name := agent(); id != "" || name != "bot" {
		t.Errorf("with a row: id %q, name %q", id, name)
	}
}

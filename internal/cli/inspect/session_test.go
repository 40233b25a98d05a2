package inspect

import (
	"testing"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

// TestStepNamesPublisher: a printed event names the sender as the broker knows it, whatever its
// body says, so that check can match it with its decision.
func TestStepNamesPublisher(t *testing.T) {
	steps := stepsOf(evidencereader.Session{Rows: []evidence.Row{
		{Seq: 1, Kind: evidence.KindEvent, Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse"},
		{Seq: 2, Kind: evidence.KindDecision, Subject: "gov.decisions.acme.allow.s1"},
	}}, nil)
	if s := steps[0]; s.Publisher != "rt1" || s.Protocol != "agenthook" {
		t.Errorf("%+v", s)
	}
	if s := steps[1]; s.Publisher != "" || s.Protocol != "" {
		t.Errorf("%+v", s)
	}
}

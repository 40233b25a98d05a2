package report

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/compliance/toyprotocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// One row is enough for a page to show the events of a protocol and the end of its sessions.
func TestToyProtocolOnThePage(t *testing.T) {
	toyPage := func() string {
		l := &log{t: t, session: "s1"}
		for _, typ := range []string{"dig", "bedtime"} {
			l.add(evidence.KindEvent, subject.Space{}.Event("acme", "rt1", "toy", "s1", typ), map[string]any{"was": typ + " deep", "by": "mole", "do": "shovel", "no": "n-7", "diary": "SECRET-VALUE"})
		}
		return render(t, source(), l.records)
	}
	shown := []string{"dig deep", "tool shovel · call n-7 · protocol toy · from rt1", "mole", "yes: bedtime at sequence 2, reported by rt1"}
	without := toyPage()
	toyprotocol.AddRow(t)
	with := toyPage()
	for _, want := range shown {
		if !strings.Contains(with, want) {
			t.Errorf("the page does not say %q", want)
		}
		if strings.Contains(without, want) {
			t.Errorf("the page says %q without a row", want)
		}
	}
	if strings.Contains(with, "SECRET-VALUE") {
		t.Error("the page shows an argument")
	}
}

// A type of one protocol ends a session in the events of every other one, as it did before
// protocols had rows: a verifier remakes the pages of older bundles and compares bytes.
func TestSessionEndInTheTypesOfAnotherProtocol(t *testing.T) {
	for _, tc := range []struct{ protocol, typ string }{
		{"agenthook", "SessionEnd"}, {"agenthook", "agent.session.completed"}, {"agenthook", "aaep:agent.session.errored"},
		{"aaep", "SessionEnd"}, {"aaep", "agent.session.cancelled"}, {"aaep", "aaep:agent.session.completed"},
		{"aump", "SessionEnd"}, {"tool", "agent.session.errored"}, {"unheard-of", "SessionEnd"},
	} {
		t.Run(tc.protocol+" "+tc.typ, func(t *testing.T) {
			l := &log{t: t, session: "s1"}
			l.add(evidence.KindEvent, subject.Space{}.Event("acme", "rt1", tc.protocol, "s1", tc.typ), map[string]any{"type": "x"})
			want := "yes: " + tc.typ + " at sequence 1, reported by rt1"
			if page := render(t, source(), l.records); !strings.Contains(page, want) {
				t.Errorf("the page does not say %q", want)
			}
		})
	}
}

package protocol

import (
	"testing"

	"github.com/countersign-dev/countersign/compliance/internal/protocol/aump"
)

// The row of a protocol with mandates is enough to find the text that a decision names.
func TestMandateOf(t *testing.T) {
	const mandate = `{"id":"aump_mnd_01","version":"0.1.0","type":"mandate","purpose":"pay invoices","status":"active"}`
	covered, hash := aump.Mandate(mandate)
	Rows["toy"] = Row{Mandate: func(text string) (string, string) { return text, "toy of " + text }}
	t.Cleanup(func() { delete(Rows, "toy") })
	for _, tc := range []struct {
		text, hash, want, covered string
	}{
		{mandate, hash, "aump", covered}, {"leave", "toy of leave", "toy", "leave"}, {mandate, "toy of leave", "", ""}, {"leave", hash, "", ""},
	} {
		if token, covered, found := MandateOf(tc.text, tc.hash); token != tc.want || covered != tc.covered || found != (tc.want != "") {
			t.Errorf("%q with hash %q: %q %q %v, want %q", tc.text, tc.hash, token, covered, found, tc.want)
		}
	}
}

// Names and identifiers are read where the protocol of an event has them; members of other types stay empty.
func TestSummarize(t *testing.T) {
	for body, want := range map[string]Summary{
		`{"event_type":"PreToolUse","tool_name":"t","agent_id":"a","metadata":{"tool_call_id":"c"}}`:   {Type: "PreToolUse", Tool: "t", Agent: "a", Call: "c"},
		`{"type":"aaep:agent.tool.invoked","tool":"t","tool_call_id":"c","producer":{"agent_id":"a"}}`: {Type: "aaep:agent.tool.invoked", Tool: "t", Agent: "a", Call: "c"},
		`{"event_type":5,"tool_name":"t"}`: {Tool: "t"},
		`[]`:                               {},
	} {
		if got := Of("no such protocol").Summarize([]byte(body)); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	Rows["toy"] = Row{Summary: func([]byte) Summary { return Summary{Tool: "own"} }}
	t.Cleanup(func() { delete(Rows, "toy") })
	if got := Of("toy").Summarize(nil); got.Tool != "own" {
		t.Errorf("%+v", got)
	}
}

func TestEndsSession(t *testing.T) {
	for typ, want := range map[string]bool{"SessionEnd": true, "PreToolUse": false, "": false} {
		if got := EndsSession(typ); got != want {
			t.Errorf("%q: %v", typ, got)
		}
	}
}

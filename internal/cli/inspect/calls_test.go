package inspect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/storage/records"
)

// TestVerdictOfACallWithoutAnID: a call without an id takes no verdict on another call of its session.
func TestVerdictOfACallWithoutAnID(t *testing.T) {
	steps := []events.TimelineEntry{{Step: "requested", Seq: 1, EventID: "e1"}, {Step: "invoked", Seq: 3, EventID: "e3"}}
	for _, c := range []struct {
		call events.Call
		want []records.CallKey
	}{
		{events.Call{}, nil},
		{events.Call{Source: "rt", ToolCallID: "tc1", Tool: "pay", Timeline: steps}, []records.CallKey{{Session: "s", Source: "rt", ToolCallID: "tc1"}}},
		{events.Call{Source: "rt", Tool: "pay", Timeline: steps}, []records.CallKey{{Session: "s", Source: "rt", Tool: "pay"},
			{Session: "s", Source: "rt", Tool: "pay", EventID: "e1"}, {Session: "s", Source: "rt", Tool: "pay", EventID: "e3"}}},
	} {
		if d := cmp.Diff(c.want, verdictKeys("s", c.call)); d != "" {
			t.Errorf("%+v: (-want +got)\n%s", c.call, d)
		}
	}
}

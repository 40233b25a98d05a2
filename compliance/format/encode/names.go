package encode

import (
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/redaction"
)

// SafeName is an identifier in the form that may leave the installation. Evidence keeps the identifiers
// of Countersign's own records unchanged, because records are signed. An identifier that holds a
// detector's finding (an address as a session, a key in the name of an agent) is masked here.
func SafeName(s string) string {
	shown, _ := redaction.Text(s)
	return shown
}

// maskNames masks the identifiers of a decoded record.
func maskNames(v any) {
	var names []*string
	switch r := v.(type) {
	case *events.Decision:
		names = []*string{&r.Tool, &r.CanonicalTool, &r.Action, &r.Agent, &r.ToolCallID, &r.EventID, &r.Source}
	case *events.Call:
		names = []*string{&r.Tool, &r.Agent, &r.ToolCallID, &r.Outcome, &r.Source}
	case *events.Approval:
		names = []*string{&r.Tool, &r.ToolCallID, &r.Approver, &r.Source}
	case *events.Finding:
		names = []*string{&r.Rule, &r.ToolCallID, &r.Session, &r.Source, &r.Explanation, &r.Remedy}
	}
	for _, n := range names {
		*n = SafeName(*n)
	}
}

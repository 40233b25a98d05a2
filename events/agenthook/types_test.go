package agenthook_test

import (
	"testing"

	"github.com/countersign-dev/countersign/events/agenthook"
)

func TestTypeTraits(t *testing.T) {
	type row struct {
		known, valid, pre, post, admission, closes, closesCall bool
	}
	observer := row{known: true, valid: true}
	tests := map[string]row{
		"PreToolUse":         {known: true, valid: true, pre: true, admission: true},
		"PreLLMCall":         {known: true, valid: true, pre: true, admission: true},
		"PreDeploy":          {valid: true, pre: true, admission: true},
		"WebResultSelected":  {known: true, valid: true, admission: true},
		"WebActionRequested": {known: true, valid: true, admission: true},
		"PostToolUse":        {known: true, valid: true, post: true, closes: true, closesCall: true},
		"PostLLMCall":        {known: true, valid: true, post: true},
		"PostDeploy":         {valid: true, post: true},
		"ToolUseBlocked":     {known: true, valid: true, closes: true, closesCall: true},
		"ErrorOccurred":      {known: true, valid: true, closesCall: true},
		"Preview":            {valid: true},
		"Postpone":           {valid: true},
		"Pre":                {valid: true},
		"Pre_ToolUse":        {},
		"preToolUse":         {},
		"":                   {},
		"Tool.Use":           {},
		"Ärger":              {},
		"9Lives":             {},
	}
	for _, name := range []string{
		"UserPromptSubmit", "ModelResponse", "SessionStart", "SessionEnd", "AgentHandoff",
		"WebSearchRequested", "WebSearchResultsReturned", "WebPageRead", "WebActionCompleted", "EvidenceUsedInOutput",
		"ToolCallValidated", "ToolCallRedacted", "ToolCallRetried",
		"ApprovalRequested", "ApprovalGranted", "ApprovalDenied", "ToolUseResumed",
		"RuntimeContractLoaded", "GoalSet", "GoalStatus",
	} {
		tests[name] = observer
	}
	known := 0
	for name, want := range tests {
		got := row{
			known: agenthook.IsKnownType(name), valid: agenthook.ValidTypeName(name), pre: agenthook.IsPre(name), post: agenthook.IsPost(name),
			admission: agenthook.AdmissionCapable(name), closes: agenthook.ClosesCall(name, ""), closesCall: agenthook.ClosesCall(name, "call-1"),
		}
		if got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
		if got.known {
			known++
		}
	}
	if known != 28 {
		t.Errorf("%d named types, want 28", known)
	}
	if !decode(t, `{"event_type":"ErrorOccurred","metadata":{"tool_call_id":"c"}}`).ClosesCall() {
		t.Error("an ErrorOccurred that names a call closes it")
	}
}

// TestWhatWaits: a proposal waits whatever phase it claims, and an unknown type may wait unless it says that it only reports.
func TestWhatWaits(t *testing.T) {
	for event, want := range map[string]struct{ waits, reports bool }{
		`{"event_type":"PreLLMCall"}`:                                     {waits: true},
		`{"event_type":"WebActionRequested","evidence_phase":"post_hoc"}`: {waits: true},
		`{"event_type":"UserPromptSubmit"}`:                               {reports: true},
		`{"event_type":"UserPromptSubmit","evidence_phase":"pre_commit"}`: {waits: true},
		`{"event_type":"DraftChecked","evidence_phase":"pre_commit"}`:     {waits: true},
		`{"event_type":"DraftChecked","evidence_phase":"observational"}`:  {reports: true},
		`{"event_type":"DraftChecked","evidence_phase":"post_hoc"}`:       {reports: true},
		`{"event_type":"DraftChecked"}`:                                   {},
	} {
		if e := decode(t, event); e.WaitsForVerdict() != want.waits || e.OnlyReports() != want.reports {
			t.Errorf("%s: waits %v, reports %v", event, e.WaitsForVerdict(), e.OnlyReports())
		}
	}
}

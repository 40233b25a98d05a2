package agenthook

import (
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// The report of a denied request says what the request says of itself; the publisher's word counts only
// where the request says nothing.
func TestFailModeEvent(t *testing.T) {
	report := FailModeReport{Reason: "no answer", EventID: "e-2", Time: time.Date(2026, 11, 20, 6, 0, 0, 0, time.FixedZone("", 3600)), ToolCallID: "other", AgentID: "a1", SessionID: "other"}
	body, wanted, err := FailModeEvent([]byte(`{"event_type":"PreToolUse","event_id":"e-1","session_id":"s1","source":"rt","tool_name":"t","metadata":{"tool_call_id":"c1"}}`), report)
	if err != nil || !wanted {
		t.Fatal(wanted, err)
	}
	e, err := Decode(body, strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	mode := e.FailMode
	if mode == nil || !mode.Triggered || mode.Outcome != "deny" || e.EventType != ErrorOccurred || e.EvidencePhase != PhasePostHoc {
		t.Errorf("%s", body)
	}
	if e.EventID != "e-2" || e.CorrelationID != "e-1" || e.SessionID != "s1" || e.ToolCallID() != "c1" || e.AgentID != "a1" || e.ToolName != "t" || e.Source != "rt" {
		t.Errorf("%s", body)
	}
	if _, wanted, err := FailModeEvent([]byte(`{"event_type":"SessionStart","event_id":"e-1"}`), report); wanted || err != nil {
		t.Errorf("an event without a verdict: %v %v", wanted, err)
	}
	if _, _, err := FailModeEvent([]byte(`{`), report); !errors.Is(err, ErrUnreadableRequest) {
		t.Errorf("%v", err)
	}
}

func TestDidNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		x        Execution
		executed bool
		want     bool
	}{
		"denied": {Execution{Outcome: "denied", StartedAt: "t"}, true, true}, "blocked": {Execution{Outcome: "blocked"}, false, true},
		"cancelled": {Execution{Outcome: "cancelled"}, false, true}, "cancelled after its start": {Execution{Outcome: "cancelled", StartedAt: "t"}, false, false},
		"timed out with arguments": {Execution{Outcome: "timed_out"}, true, false}, "succeeded": {Execution{Outcome: "succeeded"}, false, false}, "no outcome": {Execution{}, false, false},
	} {
		if got := c.x.DidNotRun(c.executed); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The texts of small vocabularies can be shared, and no others.
func TestShareWords(t *testing.T) {
	const text = `{"event_type":"PreToolUse","event_id":"e-1","session_id":"s1","metadata":{"tool_call_id":"c1","own":{"a":1},"admission_verdict":{"verdict":"allow"},"approval":{"status":"approved","workflow_id":"w"},"tool_identity":{"canonical_name":"n"}}}`
	v, err := strictjson.Read([]byte(text), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	e, err := FromValue(v, []byte(text))
	if err != nil || e.EventID != "e-1" || e.SessionID != "s1" || e.ToolCallID() != "c1" || !e.HasMetadata() || !e.HasGovernanceBlock() || e.HasExecuted() {
		t.Fatalf("%+v", e)
	}
	e.ShareWords(func(s string) string { return s + "!" })
	verdict := e.AdmissionVerdict
	approval := e.Approval
	if verdict.Verdict != "allow!" || approval.Status != "approved!" || approval.WorkflowID != "w" || e.EventID != "e-1" || e.EventType != "PreToolUse!" {
		t.Errorf("%+v %+v", verdict, approval)
	}
}

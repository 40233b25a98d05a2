package inspect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

func TestEvidenceColumns(t *testing.T) {
	builder, err := build.NewBuilder("GOV", subject.Space{})
	if err != nil {
		t.Fatal(err)
	}
	chain := build.NewChain(func(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	rowOf := func(subj string, record any) storage.EvidenceRow {
		body, err := events.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		built, err := builder.BuildBatch(chain, []events.LogMessage{{Seq: 1, Subject: subj, Time: time.Unix(0, 0), Body: body}}, evidencetest.ExampleKeys{})
		if err != nil {
			t.Fatal(err)
		}
		r := built[0].Row()
		return storage.EvidenceRow{Shard: r.Shard, Seq: r.Seq, Session: r.Session, BrokerTime: r.BrokerTime, Record: r.Record}
	}
	uitest.SameColumns(t, map[string]func(io ui.Stdio, p *ui.Printer, text string){
		"calls": func(io ui.Stdio, p *ui.Printer, x string) {
			call := events.Call{Tenant: "acme", Session: x, Tool: x, ToolCallID: x, State: events.CallCompleted, Timeline: []events.TimelineEntry{}}
			row := rowOf(subject.Space{}.Call("acme", "completed", "s"), call)
			row.Session = x
			if err := (&CallsCmd{}).print(io, p, row, false); err != nil {
				t.Error(err)
			}
		},
		"a chain": func(io ui.Stdio, _ *ui.Printer, x string) {
			_ = PrintChain(io, evidencereader.Session{Rows: []evidence.Row{{Kind: x}}}, nil, false, false)
		},
	})
}

func TestChainIsHarmless(t *testing.T) {
	var out bytes.Buffer
	row := evidence.Row{Kind: uitest.Hostile, Record: uitest.Hostile}
	_ = PrintChain(ui.Stdio{Out: &out}, evidencereader.Session{Shard: uitest.Hostile, Tenant: uitest.Hostile, Session: uitest.Hostile, Rows: []evidence.Row{row}}, nil, false, false)
	uitest.Harmless(t, out.String(), 2)
}

var timelineStart = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// A terminal must not be told what to do by a name that a publisher chose.
func TestTimelinesAreClean(t *testing.T) {
	evil := "\x1b[2J\x07\r\n\u202eevil\x00\u0085"
	body := func(v any) json.RawMessage { b, _ := json.Marshal(v); return b }
	steps := []step{
		{Seq: 1, At: events.At(timelineStart), Kind: "event", Body: body(map[string]any{"event_type": evil, "tool_name": evil, "tool_call_id": evil, "summary_normal": evil, "status": evil})},
		{Seq: 2, At: events.At(timelineStart), Kind: "decision", Body: body(events.Decision{Verdict: events.Verdict(evil), Tool: evil, ToolCallID: evil, Protocol: evil, NativeVerdict: evil, DecisionID: evil,
			Reasons: []events.Reason{{Evaluator: evil, Code: evil, Path: evil, Policy: evil, Action: evil, WouldVerdict: events.Verdict(evil)}},
			Policy:  &events.PolicyRef{Name: evil}, Mandate: &events.MandateRef{ID: evil}, Approval: &events.ApprovalRef{WorkflowID: evil, Status: evil}})},
		{Seq: 3, At: events.At(timelineStart), Kind: "call", Body: body(events.Call{State: events.CallState(evil), Tool: evil, ToolCallID: evil, Outcome: evil, Match: evil, Findings: []string{evil}})},
		{Seq: 4, At: events.At(timelineStart), Kind: "finding", Body: body(events.Finding{FindingID: evil, Rule: evil, Severity: events.Severity(evil), Explanation: evil, Remedy: evil, Retracts: evil})},
		{Seq: 5, At: events.At(timelineStart), Kind: "approval", Body: body(events.Approval{Status: evil, Act: evil, Tool: evil, Approver: evil, Reason: evil, Refused: evil, WorkflowID: evil})},
		{Seq: 6, At: events.At(timelineStart), Kind: evil, Reason: evil, subject: evil},
		{Seq: 9, At: events.At(timelineStart.Add(time.Hour)), Kind: "event", Others: 2, Pause: 3600, Missing: 1, Body: body([]string{evil}), subject: "gov.events.acme.rt.aaep.s1." + evil},
	}
	var out bytes.Buffer
	p := ui.NewPrinter(&out)
	for _, st := range steps {
		printStep(p, st, retractedFindings(steps))
	}
	for _, forbidden := range []string{"\x1b", "\x07", "\r", "\x00", "\u202e", "\u0085"} {
		if strings.Contains(out.String(), forbidden) {
			t.Errorf("%q was printed", forbidden)
		}
	}
	if !strings.Contains(out.String(), "1 record of this session missing here") || !strings.Contains(out.String(), "1h0m0s later") {
		t.Errorf("gaps are not said:\n%s", out.String())
	}
}

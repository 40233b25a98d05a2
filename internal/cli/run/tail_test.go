package run

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
)

func message(body string) events.Output {
	return events.Output{Subject: "gov.decisions.acme.deny.s1", Record: []byte(body)}
}

func TestTailCountsOnlyWhatItPrints(t *testing.T) {
	var out bytes.Buffer
	p := ui.NewPrinter(&out)
	for _, c := range []struct {
		json bool
		m    events.Output
		want bool
	}{
		{false, message(`{"verdict":"deny"}`), true}, {true, message(`{"verdict":"deny"}`), true},
		{false, message("garbage"), false}, {true, message("garbage"), false}, {true, message("{}\n{}"), false},
		{false, events.Output{Subject: "elsewhere", Record: []byte("{}")}, false},
		{false, events.Output{Subject: "gov.calls.acme.open.s1", Record: []byte(`{"state":"open"}`)}, true},
		{true, events.Output{Subject: "gov.approvals.acme.pending.w", Record: []byte(`{"status":"pending"}`)}, true},
		{false, events.Output{Subject: "gov.decisions.acme.deny.s1"}, false}, // too large for its page
		{false, events.Output{Subject: "gov.findings.acme.low.s1", Record: []byte(`{"rule":"x"}`)}, true},
	} {
		out.Reset()
		printed, err := (&TailCmd{JSON: c.json}).print(p, c.m)
		if err != nil || printed != c.want || printed != (out.Len() > 0) {
			t.Errorf("%s %q: printed %t, %v, %q", c.m.Subject, c.m.Record, printed, err, out.String())
		}
	}
}

func TestTailOfEnforcedFindings(t *testing.T) {
	c := &TailCmd{Enforced: true, Severity: "medium"}
	if kinds := c.kinds(); len(kinds) != 1 || kinds[0] != "findings" {
		t.Errorf("it follows %v", kinds)
	}
	for record, want := range map[string]bool{
		`{"rule":"x","severity":"high","enforced":true}`: true, `{"rule":"x","severity":"high"}`: false, `{"rule":"x","severity":"low","enforced":true}`: false,
		`{"rule":"x","severity":"info","withdraws":"fnd_1","enforced":true}`: true,
		`{"rule":"x","severity":"info","withdraws":"fnd_1"}`:                 false,
	} {
		var out bytes.Buffer
		printed, err := c.print(ui.NewPrinter(&out), events.Output{Subject: "gov.findings.acme.high.s1", Record: []byte(record)})
		if err != nil || printed != want || strings.Contains(out.String(), "enforced") != want {
			t.Errorf("%s: printed %t, %v, %q", record, printed, err, out.String())
		}
	}
}

func TestTailColumns(t *testing.T) {
	uitest.SameColumns(t, map[string]func(io ui.Stdio, p *ui.Printer, text string){
		"a call": func(_ ui.Stdio, p *ui.Printer, x string) { printCallNews(p, events.Call{Tool: x, ToolCallID: x}) },
		"an approval": func(_ ui.Stdio, p *ui.Printer, x string) {
			printApprovalNews(p, events.Approval{Status: x, Tool: x, WorkflowID: x, Approver: "a"})
		},
	})
}

func TestTailIsHarmless(t *testing.T) {
	for name, c := range map[string]struct {
		command TailCmd
		record  string
	}{
		"people": {TailCmd{}, `{"verdict":"deny","tool":"\u001b[2J\nx"}`}, "JSON": {TailCmd{JSON: true}, "{\n\"tool\":\n\"\\u001b[2J\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			_, _ = c.command.print(ui.NewPrinter(&out), message(c.record))
			uitest.Harmless(t, out.String(), 1)
		})
	}
}

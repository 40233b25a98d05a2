package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// print prints a record if it passes the filters, and reports whether it did.
func (c *TailCmd) print(p *ui.Printer, out events.Output) (printed bool, err error) {
	parsed, err := subject.Space{Prefix: c.Prefix}.Parse(out.Subject)
	if err != nil {
		return false, nil // not ours
	}
	tell, passes := c.read(parsed.Class, out.Record)
	switch {
	case !passes:
		return false, nil
	case c.JSON:
		var line bytes.Buffer
		if err := json.Compact(&line, out.Record); err != nil {
			return false, nil
		}
		return true, p.Line(line.String())
	}
	tell(p)
	return true, nil
}

// read returns how to print a record of a class, and whether it passes the filters.
func (c *TailCmd) read(class subject.Class, record []byte) (tell func(*ui.Printer), passes bool) {
	like := func(flag, value string) bool { return flag == "" || flag == value }
	switch class {
	case subject.Decisions:
		var d events.Decision
		err := json.Unmarshal(record, &d)
		return func(p *ui.Printer) { p.Decision(d) }, err == nil && ofSession(c.Session, d.Session) && like(c.Tool, d.Tool) && like(c.Agent, d.Agent)
	case subject.Findings:
		var f events.Finding
		err := json.Unmarshal(record, &f)
		// A retraction is info, whatever it takes back.
		bad := c.Severity == "" || f.Retracts != "" || slices.Index(events.Severities, f.Severity) >= slices.Index(events.Severities, events.Severity(c.Severity))
		shown := bad && (f.Enforced || !c.Enforced) && like(c.Rule, f.Rule) && c.Tool == "" && c.Agent == ""
		return func(p *ui.Printer) { p.Finding(f) }, err == nil && ofSession(c.Session, f.Session) && shown
	case subject.Calls:
		var call events.Call
		err := json.Unmarshal(record, &call)
		return func(p *ui.Printer) { printCallNews(p, call) }, err == nil && ofSession(c.Session, call.Session) && like(c.Tool, call.Tool) && like(c.Agent, call.Agent)
	case subject.Approvals:
		var a events.Approval
		err := json.Unmarshal(record, &a)
		return func(p *ui.Printer) { printApprovalNews(p, a) }, err == nil && like(c.Tool, a.Tool) && ofSession(c.Session, a.Session) && c.Agent == ""
	}
	return nil, false
}

func printCallNews(p *ui.Printer, c events.Call) {
	p.Printf("%-12s  %s  %s %s %s\n", "call", p.Paint(ui.StateColour[c.State], ui.Pad(string(c.State), 9)),
		ui.Pad(c.Tool, 24), ui.Pad(cmp.Or(c.ToolCallID, "-"), 20), ui.Clean(cmp.Or(c.Outcome, "-"), 40))
}

func printApprovalNews(p *ui.Printer, a events.Approval) {
	p.Printf("%-12s  %s  %s %s %s\n", a.ChangedAt.Format("15:04:05.000"), ui.Pad(a.Status, 9), ui.Pad(cmp.Or(a.Tool, "-"), 24), ui.Fill(ui.Clean(a.WorkflowID, 40), 20), ui.Clean(a.Approver, 40))
}

// ofSession reports whether a record's session is the wanted one, by its name or by its subject
// token.
func ofSession(want, have string) bool {
	return want == "" || subject.TokenValue(want) == subject.TokenValue(have)
}

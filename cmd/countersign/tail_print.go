package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// severities from the mildest to the worst.
var severities = []events.Severity{events.SeverityInfo, events.SeverityLow, events.SeverityMedium, events.SeverityHigh, events.SeverityCritical}

// print writes one record that the filters let through, and reports whether it
// did.
func (c *tailCmd) print(p *printer, out events.Output) (printed bool, err error) {
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
		_, err := fmt.Fprintln(p.w, line.String())
		return true, err
	}
	tell(p)
	return true, nil
}

// read gives how to print a record of a class, and whether it passes the
// filters.
func (c *tailCmd) read(class subject.Class, record []byte) (tell func(*printer), passes bool) {
	like := func(flag, value string) bool { return flag == "" || flag == value }
	switch class {
	case subject.Decisions:
		var d events.Decision
		err := json.Unmarshal(record, &d)
		return func(p *printer) { p.decision(d) }, err == nil && ofSession(c.Session, d.Session) && like(c.Tool, d.Tool) && like(c.Agent, d.Agent)
	case subject.Findings:
		var f events.Finding
		err := json.Unmarshal(record, &f)
		bad := (f.Enforced || !c.Enforced) && (c.Severity == "" || slices.Index(severities, f.Severity) >= slices.Index(severities, events.Severity(c.Severity)))
		return func(p *printer) { p.finding(f) }, err == nil && ofSession(c.Session, f.Session) && like(c.Rule, f.Rule) && bad && c.Tool == "" && c.Agent == ""
	case subject.Calls:
		var call events.Call
		err := json.Unmarshal(record, &call)
		return func(p *printer) { p.callNews(call) }, err == nil && ofSession(c.Session, call.Session) && like(c.Tool, call.Tool) && like(c.Agent, call.Agent)
	case subject.Approvals:
		var a events.Approval
		err := json.Unmarshal(record, &a)
		return func(p *printer) { p.approvalNews(a) }, err == nil && like(c.Tool, a.Tool) && ofSession(c.Session, a.Session) && c.Agent == ""
	}
	return nil, false
}

func (p *printer) callNews(c events.Call) {
	p.printf("%-12s  %s  %s %s %s\n", "call", p.paint(stateColour[c.State], pad(string(c.State), 9)),
		pad(c.Tool, 24), pad(or(c.ToolCallID, "-"), 20), clean(or(c.Outcome, "-"), 40))
}

func (p *printer) approvalNews(a events.Approval) {
	p.printf("%-12s  %s  %s %s %s\n", a.ChangedAt.Format("15:04:05.000"), pad(a.Status, 9), pad(or(a.Tool, "-"), 24), fill(clean(a.WorkflowID, 40), 20), clean(a.Approver, 40))
}

// positionIn reads a kept position; there is none if there is no file.
func positionIn(path string) (at client.Position, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err == nil && at.Log == "" {
		err = errors.New("it names no log")
	}
	if err != nil {
		return at, fmt.Errorf("%s holds no position: %w (move it away to begin anew)", path, err)
	}
	return at, nil
}

func keepPosition(path string, at client.Position) error {
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("keeping the position: %w", err)
	}
	return nil
}

// ofSession tells whether a record's session is the wanted one, by its name or by
// what stands for it.
func ofSession(want, have string) bool {
	return want == "" || subject.TokenValue(want) == subject.TokenValue(have)
}

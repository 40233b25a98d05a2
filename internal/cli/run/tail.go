package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/correlate"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// TailCmd is `countersign tail`.
type TailCmd struct {
	target.Flags
	Verdict   string `help:"Only decisions with this verdict: allow, ask, defer or deny." enum:",allow,ask,defer,deny" default:""`
	Session   string `help:"Only this session."`
	Tool      string `help:"Only this tool. Findings name none and are left out."`
	Agent     string `help:"Only this agent. Findings and approvals name none and are left out."`
	Findings  bool   `help:"Follow findings too."`
	Rule      string `help:"Only findings of this rule, and nothing else." placeholder:"RULE"`
	Severity  string `help:"Only findings of this severity or worse, and nothing else: info, low, medium, high or critical." enum:",info,low,medium,high,critical" default:""`
	Enforced  bool   `help:"Only findings of rules that the tenant wants enforced (see: countersign rules set), and nothing else."`
	Calls     bool   `help:"Follow the records of calls too."`
	Approvals bool   `help:"Follow the records of approvals too."`
	Since     string `help:"Begin with what was stored since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	After     uint64 `help:"Begin behind this sequence of the log." placeholder:"SEQ"`
	Resume    string `help:"Go on where this file says, and keep it up to date; without the file, begin as the other flags say." type:"path" placeholder:"FILE"`
	JSON      bool   `name:"json" help:"Print the records as they are, one a line."`
	Count     int    `help:"Stop after this many (default: never)." placeholder:"N"`

	seen int
}

func (c *TailCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Since != "" && c.After > 0 {
		return ui.UsageError{Err: errors.New("--since and --after exclude each other")}
	}
	if err := correlate.KnownRule(c.Rule); err != nil {
		return err
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	nc, err := t.Connect(ctx, target.Subscriber)
	if err != nil {
		return err
	}
	defer nc.Close()
	o := client.FollowOptions{Tenant: t.Tenant, Space: subject.Space{Prefix: c.Prefix}, Kinds: c.kinds(), Session: c.Session, OnTrouble: system.ReportOutages(io)}
	if c.Approvals {
		o.Session = "" // approval subjects have no session: read all and filter here
	}
	if c.Verdict != "" && slices.Contains(o.Kinds, string(subject.Decisions)) {
		o.States = map[string]string{string(subject.Decisions): c.Verdict}
	}
	if err := c.begin(&o); err != nil {
		return err
	}
	p := ui.NewPrinter(io.Out)
	err = client.Follow(ctx, nc, o, func(page []events.Output, at client.Position) error { return c.take(p, page, at) })
	if errors.Is(err, errSeenAll) {
		return nil
	}
	return err
}

// errSeenAll ends a tail with --count.
var errSeenAll = errors.New("enough")

// take prints a page and moves the position behind the printed outputs.
func (c *TailCmd) take(p *ui.Printer, page []events.Output, at client.Position) error {
	var enough error
	for _, out := range page {
		printed, err := c.print(p, out)
		if err != nil {
			return err
		}
		if printed {
			c.seen++
		}
		if c.Count > 0 && c.seen >= c.Count {
			at.After, enough = out.Seq, errSeenAll
			break
		}
	}
	if c.Resume != "" {
		if err := system.WritePosition(c.Resume, at); err != nil {
			return err
		}
	}
	return enough
}

// begin sets the starting position: the kept one, if there is one.
func (c *TailCmd) begin(o *client.FollowOptions) (err error) {
	if c.Resume != "" {
		if o.From, err = system.ReadPosition(c.Resume); err != nil || o.From != (client.Position{}) {
			return err
		}
	}
	o.From.After = c.After
	if c.Since != "" {
		if o.Since, err = ui.ParseMoment(c.Since, time.Now()); err != nil {
			return ui.UsageError{Err: fmt.Errorf("--since %w", err)}
		}
	}
	return nil
}

// kinds are the kinds of output that are followed.
func (c *TailCmd) kinds() (list []string) {
	onlyFindings := c.Rule != "" || c.Severity != "" || c.Enforced
	for _, k := range []struct {
		class  subject.Class
		wanted bool
	}{
		{subject.Decisions, !onlyFindings},
		{subject.Findings, c.Findings || onlyFindings},
		{subject.Calls, c.Calls && !onlyFindings},
		{subject.Approvals, c.Approvals && !onlyFindings},
	} {
		if k.wanted {
			list = append(list, string(k.class))
		}
	}
	return list
}

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

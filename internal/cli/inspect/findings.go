package inspect

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/correlate"
	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/records"
)

// FindingsCmd is `countersign findings`.
type FindingsCmd struct {
	target.Flags
	proof.ProveFlags
	Rule      string `help:"Only findings of this rule (see: countersign rules list)."`
	Severity  string `help:"Only findings of this severity or worse: info, low, medium, high or critical." enum:",info,low,medium,high,critical" default:""`
	Enforced  bool   `help:"Only findings of rules that the tenant wants enforced (see: countersign rules set)."`
	Session   string `help:"Only this session." type:"session"`
	Since     string `help:"Only findings since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Limit     int    `help:"The newest so many; 0 for all." default:"100"`
	Retracted bool   `name:"withdrawn" help:"Retracted findings, too, and what retracted them."`
	JSON      bool   `name:"json" help:"Print JSON Lines: each finding and its place in the log."`
}

// findingView is one finding in the JSON output.
type findingView struct {
	Shard     string          `json:"shard"`
	Seq       uint64          `json:"seq"`
	At        events.Time     `json:"at"` // broker time of the record
	Retracted bool            `json:"withdrawn"`
	Finding   json.RawMessage `json:"finding"`
	Proved    bool            `json:"proved"` // the list is proved complete and unchanged
}

func (c *FindingsCmd) Run(ctx context.Context, io ui.Stdio) error {
	since, err := ui.ParseSince(c.Since, c.Limit)
	if err != nil {
		return err
	}
	if err := correlate.KnownRule(c.Rule); err != nil {
		return err
	}
	t, own, restsOn, done, err := c.FindEvidence(ctx, io, c.Flags, false)
	if err != nil {
		return err
	}
	defer done()
	rows, err := records.New(own.DB.Pool()).LatestFindings(ctx, t.Tenant, records.FindingFilter{Session: c.Session, Rule: c.Rule, Severity: events.Severity(c.Severity), Since: since,
		Enforced: c.Enforced, Retracted: c.Retracted, Limit: ui.LimitAndOne(c.Limit)})
	if err != nil {
		return err
	}
	if len(rows) == 0 && c.Session != "" {
		if err := system.CheckSession(ctx, own.DB, t.Tenant, c.Session); err != nil {
			return err
		}
	}
	rows, more := ui.Newest(rows, c.Limit)
	p := ui.NewPrinter(io.Out)
	for _, r := range rows {
		if err := c.print(io, p, r, restsOn.Proved); err != nil {
			return err
		}
	}
	ui.EndList(io, p, c.JSON, len(rows), more, "finding")
	proof.PrintBasis(io, c.JSON, len(rows), restsOn)
	return proof.NoteExpired(ctx, io, own, t.Tenant, c.Session, proof.NotListed)
}

func (c *FindingsCmd) print(io ui.Stdio, p *ui.Printer, r records.StoredFinding, proved bool) error {
	body, f, err := evidencereader.DecodeRow[events.Finding](r.EvidenceRow)
	switch {
	case err != nil && c.JSON:
		return nil // verify reports it
	case err != nil:
		p.Printf("%s  %s\n", place(r.EvidenceRow), p.Paint(ui.Red, "not a finding: run countersign verify"))
		return nil
	case c.JSON:
		return ui.WriteJSON(io, findingView{Shard: r.Shard, Seq: r.Seq, At: events.At(r.BrokerTime), Retracted: r.Retracted, Finding: body, Proved: proved})
	}
	head := p.Paint(ui.SeverityColour[f.Severity], ui.Pad(string(f.Severity), 8)) + "  " + p.Paint(ui.Bold, ui.Clean(f.Rule, 60)) + "  " +
		p.Paint(ui.Faint, whose(r)+where(f))
	switch {
	case r.Retracted:
		head += "  " + p.Paint(ui.Yellow, "taken back since")
	case f.IsRetraction():
		head += "  " + p.Paint(ui.Yellow, "takes back "+ui.Clean(f.Retracts, 80))
	case f.Enforced:
		head += "  " + p.Paint(ui.Red, "enforced")
	}
	p.Printf("%s  %s\n", p.Paint(ui.Faint, place(r.EvidenceRow)), head)
	p.Wrapped(25, "", f.Explanation, "")
	p.Wrapped(25, "", f.Remedy, ui.Faint)
	return nil
}

// whose names the session of a finding; a finding without a tenant is about the log itself.
func whose(r records.StoredFinding) string {
	if r.Tenant == "" {
		return "of the log itself"
	}
	return "session " + ui.Clean(cmp.Or(r.Session, "-"), 60)
}

// where names the call of a finding, and the records that prove it.
func where(f events.Finding) string {
	text := ""
	if f.ToolCallID != "" {
		text += ", call " + ui.Clean(f.ToolCallID, 60)
	}
	if len(f.Seqs) > 0 {
		text += ", proved by " + ui.Sequences(f.Seqs)
	}
	return text
}

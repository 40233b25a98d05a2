package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

type findingsCmd struct {
	target.Flags
	proveFlags
	Rule      string `help:"Only findings of this rule (see: countersign rules list)."`
	Severity  string `help:"Only findings of this severity: info, low, medium, high or critical." enum:",info,low,medium,high,critical" default:""`
	Enforced  bool   `help:"Only findings of rules that the tenant wants enforced (see: countersign rules set)."`
	Session   string `help:"Only this session." type:"session"`
	Since     string `help:"Only findings since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Limit     int    `help:"The newest so many; 0 for all." default:"100"`
	Withdrawn bool   `help:"Those that were taken back, too, and what took them back."`
	JSON      bool   `name:"json" help:"Print JSON Lines: each finding and its place in the log."`
}

// findingView is one finding as other programs read it.
type findingView struct {
	Shard     string          `json:"shard"`
	Seq       uint64          `json:"seq"`
	At        events.Time     `json:"at"` // broker time of the record
	Withdrawn bool            `json:"withdrawn"`
	Finding   json.RawMessage `json:"finding"`
	Proved    bool            `json:"proved"` // the list was shown to be complete and unchanged
}

func (c *findingsCmd) Run(ctx context.Context, io stdio) error {
	since, err := sinceFlag(c.Since, c.Limit)
	if err != nil {
		return err
	}
	if err := knownRule(c.Rule); err != nil {
		return err
	}
	t, l, err := evidenceOf(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	own, restsOn, done, err := c.proved(ctx, io, l, t, evidencereader.CopyFilter{Tenant: t.Tenant})
	if err != nil {
		return err
	}
	defer done()
	rows, err := own.DB.LatestFindings(ctx, t.Tenant, storage.FindingFilter{Session: c.Session, Rule: c.Rule, Severity: c.Severity, Since: since,
		Enforced: c.Enforced, Retracted: c.Withdrawn, Limit: oneMore(c.Limit)})
	if err != nil {
		return err
	}
	if len(rows) == 0 && c.Session != "" {
		if err := knownSession(ctx, own.DB, t.Tenant, c.Session); err != nil {
			return err
		}
	}
	rows, more := newest(rows, c.Limit)
	p := newPrinter(io.out)
	for _, r := range rows {
		if err := c.print(io, p, r); err != nil {
			return err
		}
	}
	endList(io, p, c.JSON, len(rows), more, "finding")
	printBasis(io, c.JSON, len(rows), restsOn)
	return noteExpired(ctx, io, own, t.Tenant, c.Session, notListed)
}

func (c *findingsCmd) print(io stdio, p *printer, r storage.StoredFinding) error {
	body, f, err := bodyOf[events.Finding](r.EvidenceRow)
	switch {
	case err != nil && c.JSON:
		return nil // verify says so
	case err != nil:
		p.printf("%s  %s\n", place(r.EvidenceRow), p.paint(red, "not a finding: run countersign verify"))
		return nil
	case c.JSON:
		return compactJSON(io, findingView{Shard: r.Shard, Seq: r.Seq, At: events.At(r.BrokerTime), Withdrawn: r.Retracted, Finding: body, Proved: c.Proved})
	}
	head := p.paint(severityColour[f.Severity], pad(string(f.Severity), 8)) + "  " + p.paint(bold, clean(f.Rule, 60)) + "  " +
		p.paint(faint, "session "+clean(or(r.Session, "-"), 60)+where(f))
	switch {
	case r.Retracted:
		head += "  " + p.paint(yellow, "taken back since")
	case f.Retracts != "":
		head += "  " + p.paint(yellow, "takes back "+clean(f.Retracts, 80))
	case f.Enforced:
		head += "  " + p.paint(red, "enforced")
	}
	p.printf("%s  %s\n", p.paint(faint, place(r.EvidenceRow)), head)
	p.wrapped(25, "", f.Explanation, "")
	p.wrapped(25, "", f.Remedy, faint)
	return nil
}

// where says which call a finding is about, and what proves it.
func where(f events.Finding) string {
	text := ""
	if f.ToolCallID != "" {
		text += ", call " + clean(f.ToolCallID, 60)
	}
	if len(f.Seqs) > 0 {
		text += ", proved by " + sequences(f.Seqs)
	}
	return text
}

func sequences(list []uint64) string {
	const most = 8
	texts := make([]string, 0, most)
	for _, s := range list[:min(most, len(list))] {
		texts = append(texts, fmt.Sprint(s))
	}
	if len(list) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}

// knownRule refuses a rule that nothing is ever found for: whoever mistypes it
// must not read the empty list as good news.
func knownRule(name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, r := range allRules() {
		names = append(names, r.ID)
	}
	if slices.Contains(names, name) {
		return nil
	}
	hint := ""
	for _, n := range names {
		if strings.EqualFold(n, name) || strings.EqualFold(strings.ReplaceAll(n, "_", "-"), name) {
			hint = "; did you mean " + n + "?"
		}
	}
	return usageError{fmt.Errorf("there is no rule %.80q%s (countersign rules list)", name, hint)}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

type auditCmd struct {
	Questions auditQuestionsCmd `cmd:"" help:"List the questions that auditors ask."`
	Ask       auditAskCmd       `cmd:"" help:"Answer one of them from the evidence."`
	Auditors  auditAuditorsCmd  `cmd:"" help:"List the auditors who may read one tenant."`
	Grant     auditGrantCmd     `cmd:"" help:"Let an auditor read one tenant's evidence, and nothing else."`
	Revoke    auditRevokeCmd    `cmd:"" help:"Take that back."`
	Cut       auditCutCmd       `cmd:"" help:"Take records that no checkpoint covers out of the evidence, for the auditor to make them again."`
}

type auditQuestionsCmd struct {
	SQL  bool `name:"sql" help:"Print the statements, too."`
	JSON bool `name:"json" help:"Print one JSON object for each question."`
}

// questionView is a question as other programs read it.
type questionView struct {
	Number int      `json:"number"`
	Name   string   `json:"name"`
	Asks   string   `json:"asks"`
	Needs  []string `json:"needs"` // flags of audit ask
	SQL    string   `json:"sql"`
}

func (c *auditQuestionsCmd) Run(io stdio) error {
	for i, q := range storage.Questions() {
		if c.JSON {
			if err := compactJSON(io, questionView{i + 1, q.Name, q.Asks, append([]string{}, q.Needs...), q.SQL}); err != nil {
				return err
			}
			continue
		}
		flags := ""
		for _, need := range q.Needs {
			flags += " --" + need
		}
		fmt.Fprintf(io.out, "%2d  %-11s %s%s\n", i+1, q.Name, q.Asks, faintly(io, flags))
		if c.SQL {
			fmt.Fprintf(io.out, "\n%s;\n\n", q.SQL)
		}
	}
	return nil
}

func faintly(io stdio, flags string) string {
	if flags == "" {
		return ""
	}
	return " " + newPrinter(io.out).paint(faint, flags)
}

type auditAskCmd struct {
	target.Flags
	proveFlags
	Question string `arg:"" help:"A question's number or name (see: countersign audit questions)."`
	Agent    string `help:"The agent, or the publisher it speaks through."`
	ID       string `name:"id" help:"Id of a decision, tool call, event, workflow or mandate."`
	Session  string `help:"Only this session." type:"session"`
	Since    string `help:"Only what was recorded since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Until    string `help:"Only what was recorded until then, likewise." placeholder:"TIME"`
	Limit    int    `help:"Rows at most, the first ones." default:"1000"`
	JSON     bool   `name:"json" help:"Print one JSON object for each row."`
}

func (c *auditAskCmd) Run(ctx context.Context, io stdio) error {
	q, known := storage.FindQuestion(c.Question)
	if !known {
		return usageError{fmt.Errorf("no question %q: see countersign audit questions", c.Question)}
	}
	terms, err := c.terms(q)
	if err != nil {
		return err
	}
	t, l, err := evidenceOf(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	terms.Tenant = t.Tenant
	own, restsOn, done, err := c.proved(ctx, io, l, t, evidencereader.CopyFilter{Tenant: t.Tenant, Others: q.Name == storage.QuestionMissing})
	if err != nil {
		return err
	}
	defer done()
	a, err := own.DB.AnswerQuestion(ctx, q, terms)
	if errors.Is(err, storage.ErrMissingParams) {
		return usageError{fmt.Errorf("%q needs --%s", q.Asks, strings.TrimPrefix(err.Error(), storage.ErrMissingParams.Error()+": "))}
	}
	if err != nil {
		return err
	}
	if err := noteExpired(ctx, io, own, t.Tenant, terms.Session, "what they held is not in this answer"); err != nil {
		return err
	}
	if c.JSON {
		err = printAnswerJSON(io, a, c.Proved)
	} else {
		printAnswer(newPrinter(io.out), q, a, c.Limit)
	}
	printBasis(io, c.JSON, len(a.Rows), restsOn)
	return err
}

// terms reads the flags. One that the question does not know is a mistake: the
// answer would be about something else than was meant.
func (c *auditAskCmd) terms(q storage.Question) (t storage.QuestionParams, err error) {
	now := time.Now()
	for name, text := range map[string]string{"agent": c.Agent, "id": c.ID, "session": c.Session, "since": c.Since, "until": c.Until} {
		if text != "" && !slices.Contains(q.Needs, name) {
			return t, usageError{fmt.Errorf("question %q does not know --%s", q.Name, name)}
		}
	}
	if c.Limit < 1 {
		return t, usageError{fmt.Errorf("--limit %d: at least 1", c.Limit)}
	}
	t = storage.QuestionParams{Agent: c.Agent, ID: c.ID, Session: c.Session, Most: c.Limit}
	for _, f := range []struct {
		name, text string
		at         *time.Time
	}{{"since", c.Since, &t.Since}, {"until", c.Until, &t.Until}} {
		if f.text == "" {
			continue
		}
		if *f.at, err = moment(f.text, now); err != nil {
			return t, usageError{fmt.Errorf("--%s %w", f.name, err)}
		}
	}
	return t, nil
}

// printAnswerJSON prints a row a line, and in each whether it was proved that the
// answer is complete and unchanged.
func printAnswerJSON(io stdio, a storage.Answer, proved bool) error {
	for _, row := range a.Rows {
		m := make(map[string]any, len(row)+1)
		m["proved"] = proved
		for i, v := range row {
			m[a.Columns[i]] = v
		}
		if err := compactJSON(io, m); err != nil {
			return err
		}
	}
	return nil
}

// widest is how wide a cell of a table is at most; longer text has lines of its own.
const widest = 60

// printAnswer prints one block for each row: tables of this many columns do not
// fit. What is empty is left out.
func printAnswer(p *printer, q storage.Question, a storage.Answer, limit int) {
	p.printf("%s\n", p.paint(bold, q.Asks))
	for _, row := range a.Rows {
		p.printf("\n")
		for i, v := range row {
			text := cellText(v)
			switch {
			case text == "":
			case strings.Contains(text, "\n"):
				p.printf("  %s\n    %s\n", p.paint(faint, a.Columns[i]), strings.ReplaceAll(strings.TrimRight(cleanLines(text), "\n"), "\n", "\n    "))
			default:
				p.printf("  %s %s\n", p.paint(faint, fmt.Sprintf("%-16s", a.Columns[i])), clean(text, 10*widest))
			}
		}
	}
	switch {
	case len(a.Rows) == 0:
		p.printf("\nnothing\n")
	case len(a.Rows) == limit:
		p.printf("\n%d rows, and perhaps more: see --limit\n", limit)
	default:
		p.printf("\n%s\n", plural(len(a.Rows), "row"))
	}
}

func cellText(v any) string {
	switch v := v.(type) {
	case time.Time:
		return v.Format("2006-01-02T15:04:05.000Z")
	case []string:
		return strings.Join(v, ", ")
	case []uint64:
		if len(v) == 0 {
			return ""
		}
	}
	return fmt.Sprint(v)
}

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/proof"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/questions"
)

// AuditCmd is `countersign audit`.
type AuditCmd struct {
	Questions auditQuestionsCmd `cmd:"" help:"List the questions that auditors ask."`
	Ask       auditAskCmd       `cmd:"" help:"Answer one of them from the evidence."`
	Auditors  auditAuditorsCmd  `cmd:"" help:"List the auditors that may read one tenant."`
	Grant     auditGrantCmd     `cmd:"" help:"Let an auditor read one tenant's evidence, and nothing else."`
	Revoke    auditRevokeCmd    `cmd:"" help:"Take that back."`
	Cut       auditCutCmd       `cmd:"" help:"Take records that no checkpoint covers out of the evidence, for the auditor to make them again."`
}

type auditQuestionsCmd struct {
	SQL  bool `name:"sql" help:"Print the statements, too."`
	JSON bool `name:"json" help:"Print one JSON object for each question."`
}

// questionView is a question in the JSON output.
type questionView struct {
	Number int      `json:"number"`
	Name   string   `json:"name"`
	Asks   string   `json:"asks"`
	Needs  []string `json:"needs"` // flags of audit ask
	SQL    string   `json:"sql"`
}

func (c *auditQuestionsCmd) Run(io ui.Stdio) error {
	for i, q := range questions.All() {
		if c.JSON {
			if err := ui.WriteJSON(io, questionView{i + 1, q.Name, q.Asks, append([]string{}, q.Needs...), q.SQL}); err != nil {
				return err
			}
			continue
		}
		flags := ""
		for _, need := range q.Needs {
			flags += " --" + need
		}
		fmt.Fprintf(io.Out, "%2d  %-11s %s%s\n", i+1, q.Name, q.Asks, faintly(io, flags))
		if c.SQL {
			fmt.Fprintf(io.Out, "\n%s;\n\n", q.SQL)
		}
	}
	return nil
}

func faintly(io ui.Stdio, flags string) string {
	if flags == "" {
		return ""
	}
	return " " + ui.NewPrinter(io.Out).Paint(ui.Faint, flags)
}

type auditAskCmd struct {
	target.Flags
	proof.ProveFlags
	Question string `arg:"" help:"A question's number or name (see: countersign audit questions)."`
	Agent    string `help:"The agent, or the publisher it speaks through."`
	ID       string `name:"id" help:"Id of a decision, tool call, event, workflow or mandate."`
	Session  string `help:"Only this session." type:"session"`
	Since    string `help:"Only what was recorded since then: a duration such as 24h, or an RFC 3339 time." placeholder:"TIME"`
	Until    string `help:"Only what was recorded before then, likewise." placeholder:"TIME"`
	Limit    int    `help:"Rows at most, the first ones (0 for all)." default:"1000"`
	JSON     bool   `name:"json" help:"Print one JSON object for each row."`
}

func (c *auditAskCmd) Run(ctx context.Context, io ui.Stdio) error {
	q, known := questions.Find(c.Question)
	if !known {
		return ui.UsageError{Err: fmt.Errorf("no question %q: see countersign audit questions", c.Question)}
	}
	terms, err := c.terms(q)
	if err != nil {
		return err
	}
	t, own, restsOn, done, err := c.FindEvidence(ctx, io, c.Flags, q.Name == questions.Missing)
	if err != nil {
		return err
	}
	defer done()
	terms.Tenant = t.Tenant
	a, err := questions.Ask(ctx, own.DB.Pool(), q, terms)
	if errors.Is(err, questions.ErrMissingParams) {
		return ui.UsageError{Err: fmt.Errorf("%q needs --%s", q.Asks, strings.TrimPrefix(err.Error(), questions.ErrMissingParams.Error()+": "))}
	}
	if err != nil {
		return err
	}
	more := c.Limit > 0 && len(a.Rows) > c.Limit
	if more {
		a.Rows = a.Rows[:c.Limit]
	}
	if err := proof.NoteExpired(ctx, io, own, t.Tenant, terms.Session, "what they held is not in this answer"); err != nil {
		return err
	}
	if err := noteHidden(ctx, io, own, q); err != nil {
		return err
	}
	if c.JSON {
		if err = printAnswerJSON(io, a, restsOn.Proved); more {
			fmt.Fprintf(io.Err, "note: %s\n", rowCount(a, more))
		}
	} else {
		printAnswer(ui.NewPrinter(io.Out), q, a, more)
	}
	proof.PrintBasis(io, c.JSON, len(a.Rows), restsOn)
	return err
}

// noteHidden prints on standard error what the answer lacks for an auditor of one tenant.
func noteHidden(ctx context.Context, io ui.Stdio, l evidencereader.Reader, q questions.Question) error {
	if q.Hides == "" {
		return nil
	}
	one, err := l.DB.IsTenantView(ctx)
	if one {
		fmt.Fprintf(io.Err, "note: an auditor of one tenant is not shown %s\n", q.Hides)
	}
	return err
}

// terms reads the flags. A flag that the question does not use is an error: the answer would be
// to another question than intended.
func (c *auditAskCmd) terms(q questions.Question) (t questions.Params, err error) {
	now := time.Now()
	for name, text := range map[string]string{"agent": c.Agent, "id": c.ID, "session": c.Session, "since": c.Since, "until": c.Until} {
		if text != "" && !slices.Contains(q.Needs, name) {
			return t, ui.UsageError{Err: fmt.Errorf("question %q does not know --%s", q.Name, name)}
		}
	}
	if c.Limit < 0 {
		return t, ui.UsageError{Err: fmt.Errorf("--limit %d is below zero", c.Limit)}
	}
	t = questions.Params{Agent: c.Agent, ID: c.ID, Session: c.Session, Most: cmp.Or(ui.LimitAndOne(c.Limit), math.MaxInt32)}
	for _, f := range []struct {
		name, text string
		at         *time.Time
	}{{"since", c.Since, &t.Since}, {"until", c.Until, &t.Until}} {
		if f.text == "" {
			continue
		}
		if *f.at, err = ui.ParseMoment(f.text, now); err != nil {
			return t, ui.UsageError{Err: fmt.Errorf("--%s %w", f.name, err)}
		}
	}
	return t, nil
}

// printAnswerJSON prints one row per line, each with whether the answer was proved complete and
// unchanged.
func printAnswerJSON(io ui.Stdio, a questions.Answer, proved bool) error {
	for _, row := range a.Rows {
		m := make(map[string]any, len(row)+1)
		m["proved"] = proved
		for i, v := range row {
			m[a.Columns[i]] = v
		}
		if err := ui.WriteJSON(io, m); err != nil {
			return err
		}
	}
	return nil
}

// widest is the maximal width of a table cell; longer text gets lines of its own.
const widest = 60

// printAnswer prints one block per row, because tables with so many columns do not fit. Empty
// cells are left out.
func printAnswer(p *ui.Printer, q questions.Question, a questions.Answer, more bool) {
	p.Printf("%s\n", p.Paint(ui.Bold, q.Asks))
	for _, row := range a.Rows {
		p.Printf("\n")
		for i, v := range row {
			text := cellText(v)
			switch {
			case text == "":
			case strings.Contains(text, "\n"):
				p.Printf("  %s\n    %s\n", p.Paint(ui.Faint, a.Columns[i]), strings.ReplaceAll(strings.TrimRight(ui.CleanLines(text), "\n"), "\n", "\n    "))
			default:
				p.Printf("  %s %s\n", p.Paint(ui.Faint, fmt.Sprintf("%-16s", a.Columns[i])), ui.Clean(text, 10*widest))
			}
		}
	}
	p.Printf("\n%s\n", rowCount(a, more))
}

// rowCount says how many rows an answer shows, and whether there are more.
func rowCount(a questions.Answer, more bool) string {
	switch {
	case len(a.Rows) == 0:
		return "nothing"
	case more:
		return fmt.Sprintf("the first %s; there are more (--limit)", ui.Plural(len(a.Rows), "row"))
	default:
		return ui.Plural(len(a.Rows), "row")
	}
}

func cellText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
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

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// summaryRow is one line of the summary at the top: counts, with the words of the tables below, and a
// link to the table.
type summaryRow struct {
	Name, Link string
	Marks      []summaryMark
	Text       string
}

type summaryMark struct {
	Word string
	N    int
}

// summaryCounts counts for the summary, independent of the limits of the tables.
type summaryCounts struct {
	severities         map[string]int
	rules              map[string]int
	retracted          int
	workflows          map[string]string // the newest status of each
	workflowsTruncated bool
}

// addFindings adds n findings, or takes one away that was retracted.
func (g *summaryCounts) addFindings(f events.Finding, n int) {
	if g.severities == nil {
		g.severities, g.rules = map[string]int{}, map[string]int{}
	}
	addCount(g.severities, shortVisible(string(f.Severity)), n)
	addCount(g.rules, shortVisible(f.Rule), n)
}

// addCount adds n to the count of a name. Beyond MaxNames, a new name is not counted.
func addCount(counts map[string]int, name string, n int) {
	if _, known := counts[name]; known || len(counts) < MaxNames {
		counts[name] += n
	}
}

func (g *summaryCounts) addApproval(a events.Approval) {
	if g.workflows == nil {
		g.workflows = map[string]string{}
	}
	if _, known := g.workflows[a.WorkflowID]; !known && len(g.workflows) >= MaxRows {
		g.workflowsTruncated = true
		return
	}
	g.workflows[a.WorkflowID] = shortVisible(a.Status)
}

// The orders of words; other words follow in alphabetical order.
var (
	severityOrder = []string{"critical", "high", "medium", "low", "info"}
	verdictOrder  = []string{"deny", "defer", "ask", "allow"}
	stateOrder    = []string{"orphaned", "failed", "abandoned", "open", "denied", "completed"}
	statusOrder   = []string{"pending", "denied", "expired", "cancelled", "approved", "consumed"}
)

func marksOf(counts map[string]int, order []string) (out []summaryMark) {
	place := func(word string) int {
		if i := slices.Index(order, word); i >= 0 {
			return i
		}
		return len(order)
	}
	words := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(place(a)-place(b), strings.Compare(a, b)) })
	for _, w := range words {
		if counts[w] > 0 {
			out = append(out, summaryMark{w, counts[w]})
		}
	}
	return out
}

// summaryRows are the lines of the summary, the most serious first.
func (b *Builder) summaryRows() []summaryRow {
	verdicts, states, statuses := map[string]int{}, map[string]int{}, map[string]int{}
	for v, n := range b.verdicts {
		verdicts[shortVisible(string(v))] += n
	}
	for _, c := range b.calls.rows {
		states[c.State]++
	}
	for _, s := range b.summaryCounts.workflows {
		statuses[s]++
	}
	none := "none" + b.inTexts()
	ifNone := func(n int) string {
		if n > 0 {
			return ""
		}
		return none
	}
	rows := []summaryRow{
		{"Findings", "findings", marksOf(b.summaryCounts.severities, severityOrder), cmp.Or(b.foundText(), none)},
		{"Verdicts", "verdicts", marksOf(verdicts, verdictOrder), cmp.Or(ifNone(len(verdicts)), b.notEnforced())},
		{"Executions", "executions", marksOf(states, stateOrder), cmp.Or(ifNone(len(states)), moreText(b.calls.truncated, MaxRows, "calls"))},
		{"Approvals", "approvals", marksOf(statuses, statusOrder), cmp.Or(ifNone(len(statuses)), moreText(b.summaryCounts.workflowsTruncated, MaxRows, "workflows"))},
		{"Redactions", "redactions", nil, cmp.Or(b.redactedText(), none)},
		b.chainRow(),
	}
	if b.src.Expired > 0 {
		rows = slices.Insert(rows, 0, summaryRow{"Expired", "completeness", nil, countWord(b.src.Expired, "record") + ", of which nothing is counted here"})
	}
	return rows
}

func (b *Builder) chainRow() summaryRow {
	row := summaryRow{"Chain", "completeness", []summaryMark{{Word: "unbroken"}}, cmp.Or(moreText(b.chainCheck.unfollowed, maxSessions, "sessions"), b.ifExpired("of the records that have their text"))}
	if n := b.chainCheck.broken; n > 0 {
		row.Marks = []summaryMark{{"broken", n}}
	} else if b.count == 0 && b.src.Expired > 0 {
		row.Marks, row.Text = nil, "no record here has its text"
	}
	return row
}

// notEnforced says how many verdicts are no permission of the policies.
func (b *Builder) notEnforced() string {
	if b.observed == 0 {
		return ""
	}
	return fmt.Sprintf("%d only observed: enforced policies would have refused them", b.observed)
}

func moreText(more bool, most int, what string) string {
	if more {
		return fmt.Sprintf("of the first %d %s", most, what)
	}
	return ""
}

// shownRules is how many rules the first line names.
const shownRules = 6

// foundText names the rules with the most findings.
func (b *Builder) foundText() string {
	counts := maps.Clone(b.summaryCounts.rules)
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n <= 0 })
	rules := slices.SortedFunc(maps.Keys(counts), func(x, y string) int { return cmp.Or(counts[y]-counts[x], strings.Compare(x, y)) })
	var parts []string
	for _, r := range rules[:min(len(rules), shownRules)] {
		parts = append(parts, fmt.Sprintf("%s (%d)", r, counts[r]))
	}
	text := strings.Join(parts, ", ")
	if n := len(rules) - shownRules; n > 0 {
		text += fmt.Sprintf(" and %s", countWord(n, "other rule"))
	}
	if n := b.summaryCounts.retracted; n > 0 {
		text = fmt.Sprintf("%s; %s taken back", cmp.Or(text, "none that stands"), countWord(n, "other"))
	}
	return text
}

func (b *Builder) redactedText() string {
	if b.redacted.total == 0 {
		return ""
	}
	return fmt.Sprintf("%s taken out of %s", countWord(b.redacted.total, "value"), countWord(b.redacted.records, "record"))
}

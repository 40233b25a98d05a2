package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// glanceRow is one line of what a reader has to know first: counts under the
// words that the tables below show, and where they are.
type glanceRow struct {
	Name, Link string
	Marks      []glanceMark
	Text       string
}

type glanceMark struct {
	Word string
	N    int
}

// glance counts what the lines say, whatever the tables have room for.
type glance struct {
	severities map[string]int
	rules      map[string]int
	takenBack  int
	workflows  map[string]string // the newest status of each
	moreFlows  bool
}

func (g *glance) finding(f events.Finding) {
	if f.Withdraws != "" {
		g.takenBack++
		return
	}
	if g.severities == nil {
		g.severities, g.rules = map[string]int{}, map[string]int{}
	}
	if s := short(string(f.Severity)); g.severities[s] > 0 || len(g.severities) < MaxNames {
		g.severities[s]++
	}
	if r := short(f.Rule); g.rules[r] > 0 || len(g.rules) < MaxNames {
		g.rules[r]++
	}
}

func (g *glance) approval(a events.Approval) {
	if g.workflows == nil {
		g.workflows = map[string]string{}
	}
	if _, known := g.workflows[a.WorkflowID]; !known && len(g.workflows) >= MaxRows {
		g.moreFlows = true
		return
	}
	g.workflows[a.WorkflowID] = short(a.Status)
}

// The orders in which words stand; others come behind, by the alphabet.
var (
	severityOrder = []string{"critical", "high", "medium", "low", "info"}
	verdictOrder  = []string{"deny", "defer", "ask", "allow"}
	stateOrder    = []string{"orphaned", "failed", "abandoned", "open", "denied", "completed"}
	statusOrder   = []string{"pending", "denied", "expired", "cancelled", "approved", "consumed"}
)

func marksOf(counts map[string]int, order []string) (out []glanceMark) {
	place := func(word string) int {
		if i := slices.Index(order, word); i >= 0 {
			return i
		}
		return len(order)
	}
	words := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(place(a)-place(b), strings.Compare(a, b)) })
	for _, w := range words {
		if counts[w] > 0 {
			out = append(out, glanceMark{w, counts[w]})
		}
	}
	return out
}

// glances are the lines, the gravest matter first.
func (b *Builder) glances() []glanceRow {
	verdicts, states, statuses := map[string]int{}, map[string]int{}, map[string]int{}
	for v, n := range b.verdicts {
		verdicts[short(string(v))] += n
	}
	for _, c := range b.calls.rows {
		states[c.State]++
	}
	for _, s := range b.glance.workflows {
		statuses[s]++
	}
	chain := glanceRow{"Chain", "completeness", []glanceMark{{Word: "unbroken"}}, ""}
	if n := len(b.complete.breaks); n > 0 {
		chain.Marks = []glanceMark{{"broken", n}}
	}
	return []glanceRow{
		{"Findings", "findings", marksOf(b.glance.severities, severityOrder), or(b.foundText(), "none")},
		{"Verdicts", "verdicts", marksOf(verdicts, verdictOrder), or(none(len(verdicts)), "")},
		{"Executions", "executions", marksOf(states, stateOrder), or(none(len(states)), moreText(b.calls.more, MaxRows, "calls"))},
		{"Approvals", "approvals", marksOf(statuses, statusOrder), or(none(len(statuses)), moreText(b.glance.moreFlows, MaxRows, "workflows"))},
		{"Redactions", "redactions", nil, or(b.redactedText(), "none")},
		chain,
	}
}

func none(n int) string {
	if n == 0 {
		return "none"
	}
	return ""
}

func moreText(more bool, most int, what string) string {
	if more {
		return fmt.Sprintf("of the first %d %s", most, what)
	}
	return ""
}

// shownRules is how many rules the first line names.
const shownRules = 6

// foundText names the rules that were broken most often.
func (b *Builder) foundText() string {
	rules := slices.SortedFunc(maps.Keys(b.glance.rules), func(x, y string) int {
		return cmp.Or(b.glance.rules[y]-b.glance.rules[x], strings.Compare(x, y))
	})
	var parts []string
	for _, r := range rules[:min(len(rules), shownRules)] {
		parts = append(parts, fmt.Sprintf("%s (%d)", r, b.glance.rules[r]))
	}
	text := strings.Join(parts, ", ")
	if n := len(rules) - shownRules; n > 0 {
		text += fmt.Sprintf(" and %s", count(n, "other rule"))
	}
	if b.glance.takenBack > 0 {
		text = strings.TrimPrefix(fmt.Sprintf("%s; %d taken back", text, b.glance.takenBack), "; ")
	}
	return text
}

func (b *Builder) redactedText() string {
	if b.redacted.total == 0 {
		return ""
	}
	return fmt.Sprintf("%s taken out of %s", count(b.redacted.total, "value"), count(b.redacted.records, "record"))
}

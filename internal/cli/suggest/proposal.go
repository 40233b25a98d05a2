package suggest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

// File is the name of the proposal in compilation errors.
const File = "suggested.yaml"

// Proposal is a set of policies that permits the collected calls.
type Proposal struct {
	Text    string    `json:"policies"` // YAML, as policy test and policy push read it
	Calls   int       `json:"calls"`    // that it permits
	Rules   []Rule    `json:"rules"`
	LeftOut []LeftOut `json:"left_out"`

	Set *policy.Set `json:"-"`
}

// Rule is one rule of a proposal with what it rests on.
type Rule struct {
	ID        string            `json:"rule"`
	Protocol  string            `json:"protocol"`
	Tool      string            `json:"tool"`
	Calls     int               `json:"calls"`
	First     events.Time       `json:"first"`
	Last      events.Time       `json:"last"`
	Arguments map[string]string `json:"arguments"` // what each may be
	Samples   []json.RawMessage `json:"samples"`   // arguments as evidence shows them
	When      string            `json:"when"`
}

// ErrNothing says that no call can be proposed.
var ErrNothing = errors.New("no call that ran can be proposed")

// Propose makes the proposal. It compiles; with ErrNothing only LeftOut is set.
func (c *Collector) Propose() (Proposal, error) {
	p := Proposal{Rules: []Rule{}, LeftOut: []LeftOut{}}
	var parts []string
	names := map[string]bool{}
	for _, key := range c.sortedTools() {
		w := &policyWriter{tenant: c.tenant, key: key, name: policyName(key, names)}
		for _, name := range sortedKeys(c.tools[key].shapes) {
			if problem := w.addShape(c.tools[key].shapes[name]); problem != "" {
				c.leaveOut(key.name, problem, c.tools[key].shapes[name].calls)
			}
		}
		if len(w.rules) > 0 {
			parts, p.Rules = append(parts, w.text()), append(p.Rules, w.rules...)
		}
	}
	for _, r := range p.Rules {
		p.Calls += r.Calls
	}
	p.LeftOut = c.listLeftOut()
	if len(parts) == 0 {
		return p, ErrNothing
	}
	p.Text = strings.Join(parts, "---\n")
	set, err := policy.Compile([]policy.Document{{Name: File, Data: []byte(p.Text)}})
	if err != nil {
		return p, fmt.Errorf("the proposal does not compile: %w", err)
	}
	p.Set = set
	return p, nil
}

func (c *Collector) listLeftOut() []LeftOut {
	list := make([]LeftOut, 0, len(c.left))
	for l, n := range c.left {
		l.Calls = n
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b LeftOut) int {
		return cmp.Or(b.Calls-a.Calls, cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// policyName makes a name from protocol and tool that is unique in the proposal.
func policyName(key toolKey, taken map[string]bool) string {
	slug := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(key.name)), "-")
	base := strings.TrimRight("seen-"+key.protocol+"-"+slug[:min(len(slug), 32)], "-")
	name := base
	for n := 2; taken[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	taken[name] = true
	return name
}

// policyWriter writes the policy of one tool.
type policyWriter struct {
	tenant string
	key    toolKey
	name   string
	rules  []Rule
	params []string // names, in order
	lists  map[string][]string
}

// maxParams and maxWhen leave room below the limits of the language.
const (
	maxParams = policy.MaxParams - 1
	maxWhen   = policy.MaxExpression - 100
)

// addShape adds a rule for a shape, or returns why there is none.
func (w *policyWriter) addShape(s *shape) (problem string) {
	risk, ok := literalOf(s.risk)
	if !ok {
		return "its risk cannot be written in a rule"
	}
	when := []string{"source in " + textList(sortedKeys(s.sources)), "event_type == " + strconv.Quote(s.eventType), "action == " + strconv.Quote(s.action),
		"resource_kind == " + strconv.Quote(s.resourceKind), "risk == " + risk, "size(args) == " + strconv.Itoa(len(s.arguments))}
	lists, says := map[string][]string{}, map[string]string{}
	next := len(w.params)
	var added []string
	param := func() string {
		next++
		added = append(added, "seen"+strconv.Itoa(next))
		return added[len(added)-1]
	}
	for _, name := range sortedKeys(s.arguments) {
		l, problem := s.arguments[name].limitFor(name, param)
		if problem != "" {
			return problem
		}
		when = append(when, strconv.Quote(name)+" in args", l.condition)
		says[name] = l.says
		for p, list := range l.lists {
			lists[p] = list
		}
	}
	condition := strings.Join(when, " && ")
	if len(condition) > maxWhen || next > maxParams {
		return "its arguments need a longer rule than there can be"
	}
	w.addRule(s, condition, says)
	w.keepLists(added, lists)
	return ""
}

func (w *policyWriter) keepLists(names []string, lists map[string][]string) {
	if w.lists == nil {
		w.lists = map[string][]string{}
	}
	w.params = append(w.params, names...)
	for p, list := range lists {
		w.lists[p] = list
	}
}

func (w *policyWriter) addRule(s *shape, condition string, says map[string]string) {
	r := Rule{ID: fmt.Sprintf("%s/seen-%d", w.name, len(w.rules)+1), Protocol: w.key.protocol, Tool: w.key.name, Calls: s.calls,
		First: events.At(s.first), Last: events.At(s.last), Arguments: says, Samples: []json.RawMessage{}, When: condition}
	for _, sample := range s.samples {
		r.Samples = append(r.Samples, json.RawMessage(sample))
	}
	w.rules = append(w.rules, r)
}

// text is the policy in YAML.
func (w *policyWriter) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: %s\nspec:\n  match:\n    tenants: [%s]\n    protocols: [%s]\n    tools: [%s]\n",
		w.name, strconv.Quote(w.tenant), strconv.Quote(w.key.protocol), strconv.Quote(w.key.name))
	if len(w.lists) > 0 {
		b.WriteString("  params:\n")
	}
	for _, p := range w.params {
		if list := w.lists[p]; len(list) > 0 {
			fmt.Fprintf(&b, "    %s:\n", p)
			for _, v := range list {
				fmt.Fprintf(&b, "      - %s\n", strconv.Quote(v))
			}
		}
	}
	b.WriteString("  rules:\n")
	for _, r := range w.rules {
		r.write(&b)
	}
	return b.String()
}

func (r Rule) write(b *strings.Builder) {
	fmt.Fprintf(b, "    # %d calls, %s to %s\n", r.Calls, r.First.UTC().Format(time.DateTime), r.Last.UTC().Format(time.DateTime))
	for _, name := range sortedKeys(r.Arguments) {
		fmt.Fprintf(b, "    # %s: %s\n", strconv.Quote(name), r.Arguments[name])
	}
	for _, s := range r.Samples {
		fmt.Fprintf(b, "    # such as %s\n", comment(string(s)))
	}
	_, name, _ := strings.Cut(r.ID, "/")
	fmt.Fprintf(b, "    - name: %s\n      when: '%s'\n      verdict: allow\n      reason: seen_before\n", name, strings.ReplaceAll(r.When, "'", "''"))
}

// comment makes JSON fit for a line of a comment: what is not printable is written as an escape.
func comment(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

func textList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

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
	Text    string    `json:"policies"` // YAML, as policy test and policy push read it; wider rules are comments at its end
	Calls   int       `json:"calls"`    // that it permits
	Rules   []Rule    `json:"rules"`
	Wider   []Rule    `json:"wider"` // rules in comments: they permit calls that were not seen
	LeftOut []LeftOut `json:"left_out"`

	Set *policy.Set `json:"-"`
}

// Rule is one rule of a proposal with what it rests on.
type Rule struct {
	ID        string            `json:"rule"`
	Protocol  string            `json:"protocol"`
	Tool      string            `json:"tool"`
	Calls     int               `json:"calls"`
	Counted   int               `json:"counted_by_limits,omitempty"` // calls of this form that limits counted; the rule has no limit
	First     events.Time       `json:"first"`
	Last      events.Time       `json:"last"`
	Arguments map[string]string `json:"arguments"` // what each may be
	Samples   []json.RawMessage `json:"samples"`   // arguments as evidence shows them
	When      string            `json:"when"`
}

// ErrNothing says that no call can be proposed.
var ErrNothing = errors.New("no call that ran can be proposed")

// Propose makes the proposal. It compiles; with ErrNothing only LeftOut and Wider are set, and Text holds
// comments alone.
func (c *Collector) Propose() (Proposal, error) {
	p := Proposal{Rules: []Rule{}, Wider: []Rule{}, LeftOut: []LeftOut{}}
	seen, wider := &draft{prefix: "seen", names: map[string]bool{}}, &draft{prefix: "wider", names: map[string]bool{}}
	for _, key := range c.sortedTools() {
		w, ww := seen.policyOf(c.tenant, key), wider.policyOf(c.tenant, key)
		for _, name := range sortedKeys(c.tools[key].shapes) {
			s := c.tools[key].shapes[name]
			problem := w.addShape(s)
			if problem != "" {
				c.leaveOut(key.name, problem, s.calls)
			}
			if problem != "" || len(s.combinations) > maxListed {
				ww.addWider(s)
			}
		}
		seen.keep(w)
		wider.keep(ww)
	}
	p.Rules, p.Wider, p.LeftOut = append(p.Rules, seen.rules...), append(p.Wider, wider.rules...), c.listLeftOut()
	for _, r := range p.Rules {
		p.Calls += r.Calls
	}
	p.Text = seen.text() + commentedOut(wider.text())
	if _, err := wider.compile(); err != nil {
		return p, err
	}
	if len(seen.parts) == 0 {
		return p, ErrNothing
	}
	var err error
	p.Set, err = seen.compile()
	return p, err
}

// maxDraft bounds the bytes of all policies of a proposal: those and their wider rules are one file.
const maxDraft = policy.MaxDocument / 4

// draft is policies that are being written.
type draft struct {
	prefix string // of the names
	names  map[string]bool
	parts  []string
	rules  []Rule
	size   int
}

func (d *draft) policyOf(tenant string, key toolKey) *policyWriter {
	return &policyWriter{tenant: tenant, key: key, name: policyName(d.prefix, key, d.names), prefix: d.prefix, room: maxDraft - d.size}
}

func (d *draft) keep(w *policyWriter) {
	if len(w.rules) == 0 {
		return
	}
	text := w.text()
	d.parts, d.rules, d.size = append(d.parts, text), append(d.rules, w.rules...), d.size+len(text)
}

func (d *draft) text() string { return strings.Join(d.parts, "---\n") }

func (d *draft) compile() (*policy.Set, error) {
	if len(d.parts) == 0 {
		return nil, nil
	}
	set, err := policy.Compile([]policy.Document{{Name: File, Data: []byte(d.text())}})
	if err != nil {
		return nil, fmt.Errorf("the proposal does not compile: %w", err)
	}
	return set, nil
}

// WiderMark is the line before the wider rules. Behind it, a # at the beginning of each line keeps a rule
// from being in force.
const WiderMark = "# WIDER than what was seen: these rules permit calls that never ran. To take one up, read it and remove the first # of its lines.\n"

// commentedOut makes comments of policies.
func commentedOut(text string) string {
	if text == "" {
		return ""
	}
	return WiderMark + "#---\n#" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n#") + "\n"
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
func policyName(prefix string, key toolKey, taken map[string]bool) string {
	slug := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(key.name)), "-")
	base := strings.TrimRight(prefix+"-"+key.protocol+"-"+slug[:min(len(slug), 32)], "-")
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
	prefix string // of the names of rules
	rules  []Rule
	params []string // names, in order
	lists  map[string][]string
	room   int // bytes that it may yet take
}

// Limits that leave room below those of the language.
const (
	maxParams = policy.MaxParams - 1
	maxWhen   = policy.MaxExpression - 100
	maxRules  = policy.MaxRules - maxShapeRules
)

// namer makes names of params.
func (w *policyWriter) namer() (param func() string, added *[]string) {
	added = &[]string{}
	return func() string {
		*added = append(*added, "seen"+strconv.Itoa(len(w.params)+len(*added)+1))
		return (*added)[len(*added)-1]
	}, added
}

// base is the conditions that a shape always has.
func (s *shape) base() (list []string, problem string) {
	risk, ok := literalOf(s.risk)
	if !ok {
		return nil, "its risk cannot be written in a rule"
	}
	list = []string{"event_type == " + strconv.Quote(s.eventType), "action == " + strconv.Quote(s.action),
		"resource_kind == " + strconv.Quote(s.resourceKind), "risk == " + risk, "size(args) == " + strconv.Itoa(len(s.arguments))}
	for _, name := range sortedKeys(s.arguments) {
		list = append(list, strconv.Quote(name)+" in args")
	}
	return list, ""
}

// addShape adds the rules that permit exactly the calls of a shape, or returns why there are none.
func (w *policyWriter) addShape(s *shape) (problem string) {
	base, problem := s.base()
	if problem != "" {
		return problem
	}
	param, added := w.namer()
	e, problem := s.exactConditions(base, param)
	if problem != "" {
		return problem
	}
	if len(w.params)+len(*added) > maxParams || len(w.rules) > maxRules {
		return "its tool was called in more ways than one policy has"
	}
	if !w.takeRoom(e.conditions, e.lists) {
		return "the proposal would be larger than one file of policies"
	}
	says := map[string]string{}
	for i, name := range sortedKeys(s.arguments) {
		says[name] = s.sayValues(len(around) + i)
	}
	for i, condition := range e.conditions {
		w.addRule(s, condition, says, e.calls[i])
	}
	w.keepLists(*added, e.lists)
	return ""
}

// sayValues says for people which values a field may have.
func (s *shape) sayValues(field int) string {
	values := map[string]bool{}
	for _, c := range s.combinations {
		values[CanonicalForm(c.values[field])] = true
	}
	if len(values) == 1 {
		return "1 value"
	}
	if len(s.varyingFields()) == 1 {
		return fmt.Sprintf("%d values", len(values))
	}
	return fmt.Sprintf("%d values, in %d combinations", len(values), len(s.combinations))
}

// takeRoom takes the room that conditions and lists need, if there is so much.
func (w *policyWriter) takeRoom(conditions []string, lists map[string][]string) bool {
	n := 0
	for _, c := range conditions {
		n += len(c) + maxSamples*maxSample + 400
	}
	for _, list := range lists {
		for _, text := range list {
			n += len(strconv.Quote(text)) + 10
		}
	}
	if n > w.room {
		return false
	}
	w.room -= n
	return true
}

// addWider adds a rule that permits more than the calls of a shape, by what they have in common. Without
// such a rule it adds nothing.
func (w *policyWriter) addWider(s *shape) {
	when, problem := s.base()
	if problem != "" {
		return
	}
	param, added := w.namer()
	lists, says, wide := map[string][]string{}, map[string]string{}, s.tooMany
	for _, f := range around {
		if values := sortedKeys(s.settings[f.expression]); len(values) > 0 {
			when = append(when, f.expression+" in "+textList(values))
		}
	}
	for _, name := range sortedKeys(s.arguments) {
		l, problem := s.arguments[name].limitFor(name, param)
		if problem != "" {
			return
		}
		when, says[name], wide = append(when, l.condition), l.says, wide || l.wide
		for p, list := range l.lists {
			lists[p] = list
		}
	}
	condition := strings.Join(when, " && ")
	if wide && len(condition) <= maxWhen && len(w.params)+len(*added) <= maxParams && len(w.rules) < maxRules && w.takeRoom([]string{condition}, lists) {
		w.addRule(s, condition, says, s.calls)
		w.keepLists(*added, lists)
	}
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

func (w *policyWriter) addRule(s *shape, condition string, says map[string]string, calls int) {
	r := Rule{ID: fmt.Sprintf("%s/%s-%d", w.name, w.prefix, len(w.rules)+1), Protocol: w.key.protocol, Tool: w.key.name, Calls: calls, Counted: s.counted,
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
	if r.Counted > 0 {
		fmt.Fprintf(b, "    # limits counted %d calls of this form; this rule has no limit\n", r.Counted)
	}
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

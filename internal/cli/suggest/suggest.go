// Package suggest proposes policies from calls that were seen to run. A proposal permits the calls that
// were seen and no other: publisher, tool, arguments and all else that policies read, except ids and
// times, are those of one call that ran. Calls that are too many for that are left out, and calls that a
// person approved. A proposal has no limits, and says where one counted. A wider rule for
// them, by what they have in common, is in the proposal as a comment, for a person to take up. A proposal
// never quotes what evidence hides. The package is pure. Begin reading with Collector.
package suggest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events/agenttool"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/redaction"
)

// Bounds of a proposal. What is beyond them is left out of it and counted.
const (
	maxShapes  = 64  // of one tool
	maxTools   = 500 // of one proposal
	maxSamples = 3   // of one shape
	maxSample  = 240 // bytes of a sample
)

// Call is a call that was permitted and ran.
type Call struct {
	Input policy.Input // as the policies saw it
	// Shown are the arguments as evidence shows them; nil if it withholds them.
	Shown map[string]any
	// Hidden says that evidence hides one of the values of Quoted.
	Hidden bool
	// Approved says that reviewers approved it: a policy alone did not permit it.
	Approved bool
	// Counted says that a limit counted it.
	Counted bool
	At      time.Time
}

// LeftOut counts calls that are not in the proposal.
type LeftOut struct {
	Tool   string `json:"tool"`
	Reason string `json:"reason"`
	Calls  int    `json:"calls"`
}

// Collector gathers the calls of one tenant. The zero Collector is not usable; see New.
type Collector struct {
	tenant string
	tools  map[toolKey]*tool
	left   map[LeftOut]int // by tool and reason
	calls  int
}

// New makes a collector for the calls of a tenant.
func New(tenant string) *Collector {
	return &Collector{tenant: tenant, tools: map[toolKey]*tool{}, left: map[LeftOut]int{}}
}

type toolKey struct{ protocol, name string }

// tool is what was seen of one tool in one protocol.
type tool struct{ shapes map[string]*shape }

// shape is what calls of a tool have in common: their form, and the names and types of the arguments.
type shape struct {
	eventType, action, resourceKind string
	risk                            map[string]any
	arguments                       map[string]*argument
	combinations                    map[string]*combination // by canonical form
	tooMany                         bool                    // more than combinations holds
	settings                        map[string]map[string]bool
	calls, counted                  int
	first, last                     time.Time
	samples                         []string
}

// Add takes a call in. A call that cannot be proposed is counted as left out.
func (c *Collector) Add(call Call) {
	in := &call.Input
	if reason := unproposable(call); reason != "" {
		c.leaveOut(in.Tool, reason, 1)
		return
	}
	key := toolKey{in.Protocol, in.Tool}
	t := c.tools[key]
	if t == nil {
		if len(c.tools) == maxTools {
			c.leaveOut(in.Tool, "there are more tools than one proposal has", 1)
			return
		}
		t = &tool{map[string]*shape{}}
		c.tools[key] = t
	}
	name := shapeName(in)
	s := t.shapes[name]
	if s == nil {
		if len(t.shapes) == maxShapes {
			c.leaveOut(in.Tool, "the tool was called in more forms than one policy has", 1)
			return
		}
		s = newShape(in)
		t.shapes[name] = s
	}
	s.add(call)
	c.calls++
}

// leaveOut counts calls of a tool. A name that evidence would not show stands for no tool.
func (c *Collector) leaveOut(tool, reason string, calls int) {
	if redaction.SecretName(tool) {
		tool = ""
	}
	c.left[LeftOut{Tool: tool, Reason: reason}] += calls
}

// unproposable returns why a call cannot be in a proposal, "" if it can.
func unproposable(call Call) string {
	in := call.Input
	switch {
	case call.Approved:
		return "a person approved it, for this once"
	case in.Tool == "" || policy.ProposesHandoff(in.Protocol):
		return "it names no tool; write rules for handoffs by hand"
	case strings.ContainsAny(in.Tool, "*?"):
		return "the tool's name holds a character that stands for others in a policy"
	case in.RawArguments, CanonicalForm(orEmpty(in.Args)) == "", CanonicalForm(orEmpty(in.Risk)) == "":
		return "its arguments are not JSON"
	case call.Hidden, hidden(in):
		return "its tool, action, risk or publisher holds what evidence hides"
	}
	for name, value := range in.Args {
		if shown, there := call.Shown[name]; !there || CanonicalForm(shown) != CanonicalForm(value) {
			return "an argument holds what evidence hides"
		}
	}
	return ""
}

// hidden reports whether evidence hides a part of what a rule would quote besides arguments.
func hidden(in policy.Input) bool {
	if redaction.SecretName(in.Tool) {
		return true
	}
	quoted := []string{}
	for _, v := range Quoted(in) {
		if text, is := v.(string); is {
			quoted = append(quoted, text)
		} else {
			quoted = append(quoted, CanonicalForm(v))
		}
	}
	for name := range in.Args {
		quoted = append(quoted, name)
	}
	return slices.ContainsFunc(quoted, func(s string) bool {
		_, found := redaction.Text(s)
		return len(found) > 0
	})
}

// CanonicalForm is the RFC 8785 form of a value, for comparison; "" if it has none.
func CanonicalForm(v any) string {
	b, err := strictjson.Canonical(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// shapeName tells shapes of a tool apart.
func shapeName(in *policy.Input) string {
	types := make(map[string]any, len(in.Args))
	for name, v := range in.Args {
		types[name] = typeOf(v)
	}
	return CanonicalForm([]any{in.EventType, in.Action, in.ResourceKind, orEmpty(in.Risk), types, typeOf(in.Resource)})
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case string:
		return "string"
	case json.Number, float64:
		return "number"
	case []any:
		return "list"
	}
	return "map"
}

func newShape(in *policy.Input) *shape {
	s := &shape{eventType: in.EventType, action: in.Action, resourceKind: in.ResourceKind, risk: orEmpty(in.Risk),
		arguments: map[string]*argument{}, combinations: map[string]*combination{}, settings: map[string]map[string]bool{}}
	for name := range in.Args {
		s.arguments[name] = newArgument(*in, name)
	}
	return s
}

func (s *shape) add(call Call) {
	s.calls++
	if call.Counted {
		s.counted++
	}
	s.addSettings(call.Input)
	for name, v := range call.Input.Args {
		s.arguments[name].add(v)
	}
	name, values := s.combinationOf(call.Input)
	switch c := s.combinations[name]; {
	case c != nil:
		c.calls++
	case len(s.combinations) == maxCombinations:
		s.tooMany = true
	default:
		s.combinations[name] = &combination{values, 1}
	}
	if s.first.IsZero() || call.At.Before(s.first) {
		s.first = call.At
	}
	if call.At.After(s.last) {
		s.last = call.At
	}
	sample := CanonicalForm(orEmpty(call.Shown))
	if len(sample) <= maxSample && len(s.samples) < maxSamples && !slices.Contains(s.samples, sample) {
		s.samples = append(s.samples, sample)
	}
}

// isFreeText reports whether an argument of an agent's own tool is a text that differs in every call: a
// file's new content, or the agent's words on a command.
func isFreeText(in policy.Input, name string) bool {
	if kind := agenttool.Describe(in.Tool, in.Args, in.Event).Kind; kind == string(agenttool.Write) || kind == string(agenttool.Shell) {
		return freeTexts[kind][name]
	}
	return false
}

var freeTexts = map[string]map[string]bool{
	string(agenttool.Write): {"content": true, "contents": true, "file_text": true, "new_string": true, "old_string": true, "new_str": true, "old_str": true},
	string(agenttool.Shell): {"description": true},
}

// sortedTools are the tools in the order of a proposal.
func (c *Collector) sortedTools() []toolKey {
	return slices.SortedFunc(maps.Keys(c.tools), func(a, b toolKey) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.name, b.name))
	})
}

// addSettings notes what is around the arguments, for a wider rule. The resource is not noted: it repeats an
// argument.
func (s *shape) addSettings(in policy.Input) {
	for _, f := range around {
		text, is := f.value(in).(string)
		if !is || f.expression == "resource" {
			continue
		}
		if s.settings[f.expression] == nil {
			s.settings[f.expression] = map[string]bool{}
		}
		s.settings[f.expression][text] = true
	}
}

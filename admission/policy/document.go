package policy

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
)

// Document is one policy file: any number of YAML documents.
type Document struct {
	Name string // as it appears in error messages, e.g. the file's name
	Data []byte
}

// EvaluatorsOnly is the name of the built-in policy that leaves the decision to
// the protocol's own evaluator.
const EvaluatorsOnly = "evaluators-only"

// Builtin gives the document of a built-in policy by its name.
func Builtin(name string) (Document, bool) {
	if name != EvaluatorsOnly {
		return Document{}, false
	}
	return Document{Name: name, Data: []byte("builtin: " + name + "\n")}, true
}

const (
	apiVersion = "countersign.dev/v1"
	kind       = "AdmissionPolicy"
)

// spec is a policy as written, checked but not compiled. Its JSON form is what
// the digest of a set is made of: everything that decides, and nothing else.
type spec struct {
	Name         string        `json:"name"`
	Match        match         `json:"match"`
	ExpiresAfter time.Duration `json:"expires_after_ns"`
	Fallback     bool          `json:"fallback,omitempty"`
	AcceptRaw    bool          `json:"accept_raw_arguments,omitempty"`
	Rules        []ruleSpec    `json:"rules"`

	file    string
	line    int
	builtin bool
}

type match struct {
	Tenants       []string `json:"tenants,omitempty"`
	Sources       []string `json:"sources,omitempty"`
	Protocols     []string `json:"protocols,omitempty"`
	Tools         []string `json:"tools,omitempty"`
	Actions       []string `json:"actions,omitempty"`
	ResourceKinds []string `json:"resource_kinds,omitempty"`
	Risks         []string `json:"risks,omitempty"`
	FromAgents    []string `json:"from_agents,omitempty"`
	ToAgents      []string `json:"to_agents,omitempty"`
}

type ruleSpec struct {
	Name       string         `json:"name"`
	When       string         `json:"when"`
	Verdict    events.Verdict `json:"verdict"`
	Reason     string         `json:"reason"`
	Message    string         `json:"message,omitempty"`
	ResultMode string         `json:"result_mode,omitempty"`

	line, whenLine int
}

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)
	ruleForm   = regexp.MustCompile(`^[a-z0-9]([-_.a-z0-9]*[a-z0-9])?$`)
	reasonForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	anyText    = regexp.MustCompile(`^[^\x00-\x1f\x7f]+$`)
	modeForm   = regexp.MustCompile("^(" + ModeThrow + "|" + ModeToolResult + ")$")
)

// readFile reads the policies of one file.
func readFile(d Document) ([]spec, error) {
	nodes, err := documents(d.Name, d.Data)
	if err != nil {
		return nil, err
	}
	r := &reader{file: d.Name}
	var specs []spec
	for _, n := range nodes {
		before := len(r.errs)
		s := r.document(n)
		if len(r.errs) == before {
			specs = append(specs, s)
		}
	}
	if len(nodes) == 0 {
		r.fail(&yaml.Node{Line: 1}, "the file holds no policy")
	}
	return specs, errors.Join(r.errs...)
}

func (r *reader) document(doc *yaml.Node) spec {
	s := spec{file: r.file, line: max(doc.Line, 1)}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		r.fail(doc, "the document is not a policy; it must be a mapping with apiVersion, kind, metadata and spec")
		return s
	}
	root := doc.Content[0]
	s.line = root.Line
	if len(root.Content) > 0 && slices.ContainsFunc(root.Content, func(n *yaml.Node) bool { return n.Value == "builtin" }) {
		return r.builtin(root, s)
	}
	var version, kindName string
	r.mapping(root, "the policy", map[string]field{
		"apiVersion": r.matching("apiVersion", 64, regexp.MustCompile("^"+regexp.QuoteMeta(apiVersion)+"$"), &version),
		"kind":       r.matching("kind", 64, regexp.MustCompile("^"+kind+"$"), &kindName),
		"metadata": func(n *yaml.Node) {
			r.mapping(n, "metadata", map[string]field{"name": r.matching("metadata.name", 63, nameForm, &s.Name)}, "name")
		},
		"spec": func(n *yaml.Node) { r.spec(n, &s) },
	}, "apiVersion", "kind", "metadata", "spec")
	if s.Name == EvaluatorsOnly {
		r.fail(root, "the name %s belongs to the built-in policy; write the line \"builtin: %s\" to use it", EvaluatorsOnly, EvaluatorsOnly)
	}
	return s
}

// builtin expands the one-line form.
func (r *reader) builtin(root *yaml.Node, s spec) spec {
	r.mapping(root, "a built-in policy", map[string]field{
		"builtin": r.matching("builtin", 63, regexp.MustCompile("^"+EvaluatorsOnly+"$"), &s.Name),
	}, "builtin")
	s.builtin = true
	s.Rules = []ruleSpec{{Name: "all", When: "true", Verdict: events.Allow, Reason: CodeEvaluatorsOnly, line: root.Line, whenLine: root.Line}}
	return s
}

func (r *reader) spec(n *yaml.Node, s *spec) {
	r.mapping(n, "spec", map[string]field{
		"match":              func(n *yaml.Node) { r.match(n, &s.Match) },
		"expiresAfter":       r.lifetime(&s.ExpiresAfter),
		"fallback":           r.flag("spec.fallback", &s.Fallback),
		"acceptRawArguments": r.flag("spec.acceptRawArguments", &s.AcceptRaw),
		"rules":              r.list("spec.rules", MaxRules, func(n *yaml.Node) { r.rule(n, s) }),
	}, "rules")
}

func (r *reader) match(n *yaml.Node, m *match) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.fail(n, "spec.match is empty; leave it out to match everything")
		return
	}
	r.mapping(n, "spec.match", map[string]field{
		"tenants":       r.patterns("tenants", &m.Tenants),
		"sources":       r.patterns("sources", &m.Sources),
		"protocols":     r.patterns("protocols", &m.Protocols),
		"tools":         r.patterns("tools", &m.Tools),
		"actions":       r.patterns("actions", &m.Actions),
		"resourceKinds": r.patterns("resourceKinds", &m.ResourceKinds),
		"risks":         r.patterns("risks", &m.Risks),
		"fromAgents":    r.patterns("fromAgents", &m.FromAgents),
		"toAgents":      r.patterns("toAgents", &m.ToAgents),
	})
	r.coherent(n, m)
}

func (r *reader) rule(n *yaml.Node, s *spec) {
	rule := ruleSpec{line: n.Line}
	var verdict string
	r.mapping(n, "a rule", map[string]field{
		"name": r.matching("the rule's name", 63, ruleForm, &rule.Name),
		"when": func(n *yaml.Node) {
			rule.whenLine = n.Line
			r.text("the rule's when", MaxExpression, &rule.When)(n)
		},
		"verdict":    r.text("the rule's verdict", 16, &verdict),
		"reason":     r.matching("the rule's reason", 64, reasonForm, &rule.Reason),
		"message":    r.matching("the rule's message", MaxMessage, anyText, &rule.Message),
		"resultMode": r.matching("the rule's resultMode", 16, modeForm, &rule.ResultMode),
	}, "name", "when", "verdict", "reason")
	rule.Verdict = events.Verdict(verdict)
	if verdict != "" && !slices.Contains(events.Verdicts, rule.Verdict) {
		r.fail(n, "the verdict %.16q is none of allow, ask, defer, deny", verdict)
	}
	if rule.ResultMode != "" && rule.Verdict == events.Allow {
		r.fail(n, "resultMode says how a refusal is told; a rule that allows has none")
	}
	if rule.Name != "" && slices.ContainsFunc(s.Rules, func(o ruleSpec) bool { return o.Name == rule.Name }) {
		r.fail(n, "two rules are named %s", rule.Name)
	}
	s.Rules = append(s.Rules, rule)
}

func (r *reader) lifetime(into *time.Duration) field {
	return func(n *yaml.Node) {
		var s string
		before := len(r.errs)
		if r.text("spec.expiresAfter", 32, &s)(n); len(r.errs) > before {
			return
		}
		d, err := time.ParseDuration(strings.TrimSpace(s))
		if err != nil || d < MinLifetime || d > MaxLifetime {
			r.fail(n, "spec.expiresAfter must be a duration between %s and %s, such as 60s", MinLifetime, MaxLifetime)
			return
		}
		*into = d
	}
}

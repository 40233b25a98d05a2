package policy

import (
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictyaml"
)

// spec is a policy as written, checked but not compiled. Its JSON form is the input of the
// set's digest: everything that affects decisions, and nothing else.
type spec struct {
	Name         string         `json:"name"`
	Scope        string         `json:"scope,omitempty"`  // ScopeDefault, or "" if Match implies the scope
	Action       string         `json:"action,omitempty"` // ActionWarn, ActionAudit, or "" for enforce
	Match        match          `json:"match"`
	ExpiresAfter time.Duration  `json:"expires_after_ns"`
	Fallback     bool           `json:"fallback,omitempty"`
	AcceptRaw    bool           `json:"accept_raw_arguments,omitempty"`
	Params       map[string]any `json:"params,omitempty"` // includes those of paramsFrom once they are resolved
	Variables    []variableSpec `json:"variables,omitempty"`
	Approval     *approvalSpec  `json:"approval,omitempty"`
	Rules        []ruleSpec     `json:"rules"`
	paramLines   map[string]int // of the params in spec.params itself
	paramsFrom   []reference    // documents of kind Params
	place
	builtin bool
}

// reference is the name of an item in another document.
type reference struct {
	name string
	line int
}

type match struct {
	Tenants       []string `json:"tenants,omitempty"`
	Sources       []string `json:"sources,omitempty"`
	Protocols     []string `json:"protocols,omitempty"`
	EventTypes    []string `json:"event_types,omitempty"`
	Tools         []string `json:"tools,omitempty"`
	Actions       []string `json:"actions,omitempty"`
	ResourceKinds []string `json:"resource_kinds,omitempty"`
	Risks         []string `json:"risks,omitempty"`
	FromAgents    []string `json:"from_agents,omitempty"`
	ToAgents      []string `json:"to_agents,omitempty"`
}

// ruleMatch narrows what a rule applies to, within its policy's match.
type ruleMatch struct {
	Tools      []string `json:"tools,omitempty"`
	Actions    []string `json:"actions,omitempty"`
	EventTypes []string `json:"event_types,omitempty"`
}

func (m ruleMatch) empty() bool { return len(m.Tools)+len(m.Actions)+len(m.EventTypes) == 0 }

type ruleSpec struct {
	Name       string         `json:"name"`
	Match      *ruleMatch     `json:"match,omitempty"`
	When       string         `json:"when"`
	Limit      *limitSpec     `json:"limit,omitempty"`
	Verdict    events.Verdict `json:"verdict"`
	Reason     string         `json:"reason"`
	Message    string         `json:"message,omitempty"`
	ResultMode string         `json:"result_mode,omitempty"`
	Approval   *approvalSpec  `json:"approval,omitempty"`

	line, whenLine int
}

func (s ruleSpec) narrowedMatch() ruleMatch {
	if s.Match == nil {
		return ruleMatch{}
	}
	return *s.Match
}

func (s ruleSpec) needsApproval() bool { return s.Verdict == events.Ask || s.Verdict == events.Defer }

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)
	ruleForm   = regexp.MustCompile(`^[a-z0-9]([-_.a-z0-9]*[a-z0-9])?$`)
	reasonForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	anyText    = regexp.MustCompile(`^[^\x00-\x1f\x7f]+$`)
	modeForm   = regexp.MustCompile("^(" + ModeThrow + "|" + ModeToolResult + ")$")
)

func (r *reader) readSpec(n *yaml.Node, s *spec) {
	var scope string
	r.Mapping(n, "spec", strictyaml.Fields{
		"scope":              r.Form("spec.scope", 16, scopeForm, &scope),
		"validationActions":  r.actionsField(&s.Action),
		"match":              func(n *yaml.Node) { r.readMatch(n, &s.Match) },
		"expiresAfter":       r.Duration("spec.expiresAfter", MinLifetime, MaxLifetime, &s.ExpiresAfter),
		"fallback":           r.Bool("spec.fallback", &s.Fallback),
		"acceptRawArguments": r.Bool("spec.acceptRawArguments", &s.AcceptRaw),
		"params":             func(n *yaml.Node) { r.readOwnParams(n, s) },
		"paramsFrom":         r.referencesField("spec.paramsFrom", MaxParamsFrom, &s.paramsFrom),
		"variables":          r.List("spec.variables", MaxVariables, func(n *yaml.Node) { r.readVariable(n, s) }),
		"approval":           r.approvalField("spec.approval", &s.Approval),
		"rules":              r.List("spec.rules", MaxRules, func(n *yaml.Node) { r.readRule(n, s) }),
	}, "rules")
	r.readScope(n, scope, s)
	if s.Approval != nil && len(s.Rules) > 0 && !slices.ContainsFunc(s.Rules, ruleSpec.needsApproval) {
		r.Fail(&yaml.Node{Line: s.Approval.line}, "spec.approval says how an ask or a defer is approved; no rule of the policy has that verdict")
	}
}

func (r *reader) readMatch(n *yaml.Node, m *match) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.Fail(n, "spec.match is empty; leave it out to match everything")
		return
	}
	r.Mapping(n, "spec.match", strictyaml.Fields{
		"tenants":       r.operandField("tenants", &m.Tenants),
		"sources":       r.operandField("sources", &m.Sources),
		"protocols":     r.operandField("protocols", &m.Protocols),
		"eventTypes":    r.operandField("eventTypes", &m.EventTypes),
		"tools":         r.operandField("tools", &m.Tools),
		"actions":       r.operandField("actions", &m.Actions),
		"resourceKinds": r.operandField("resourceKinds", &m.ResourceKinds),
		"risks":         r.operandField("risks", &m.Risks),
		"fromAgents":    r.operandField("fromAgents", &m.FromAgents),
		"toAgents":      r.operandField("toAgents", &m.ToAgents),
	})
	r.checkOperands(n, m)
}

func (r *reader) readRuleMatch(n *yaml.Node, into **ruleMatch) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.Fail(n, "the rule's match is empty; leave it out to match whatever the policy does")
		return
	}
	m := &ruleMatch{}
	r.Mapping(n, "the rule's match", strictyaml.Fields{
		"tools":      r.operandField("tools", &m.Tools),
		"actions":    r.operandField("actions", &m.Actions),
		"eventTypes": r.operandField("eventTypes", &m.EventTypes),
	})
	*into = m
}

func (r *reader) readRule(n *yaml.Node, s *spec) {
	rule := ruleSpec{line: n.Line}
	var verdict string
	r.Mapping(n, "a rule", strictyaml.Fields{
		"name":  r.Form("the rule's name", 63, ruleForm, &rule.Name),
		"match": func(n *yaml.Node) { r.readRuleMatch(n, &rule.Match) },
		"when": func(n *yaml.Node) {
			rule.whenLine = n.Line
			r.Text("the rule's when", MaxExpression, &rule.When)(n)
		},
		"limit":      func(n *yaml.Node) { r.readLimit(n, &rule.Limit) },
		"verdict":    r.Text("the rule's verdict", 16, &verdict),
		"reason":     r.Form("the rule's reason", 64, reasonForm, &rule.Reason),
		"message":    r.Form("the rule's message", MaxMessage, anyText, &rule.Message),
		"resultMode": r.Form("the rule's resultMode", 16, modeForm, &rule.ResultMode),
		"approval":   r.approvalField("the rule's approval", &rule.Approval),
	}, "name", "when", "verdict", "reason")
	rule.Verdict = events.Verdict(verdict)
	r.checkRule(n, rule, s)
	s.Rules = append(s.Rules, rule)
}

func (r *reader) checkRule(n *yaml.Node, rule ruleSpec, s *spec) {
	if rule.Verdict != "" && !slices.Contains(events.Verdicts, rule.Verdict) {
		r.Fail(n, "the verdict %.16q is none of allow, ask, defer, deny", string(rule.Verdict))
	}
	if rule.ResultMode != "" && rule.Verdict == events.Allow {
		r.Fail(n, "resultMode says how a refusal is told; a rule that allows has none")
	}
	if rule.Approval != nil && !rule.needsApproval() {
		r.Fail(n, "approval says how an ask or a defer is approved; this rule's verdict is another")
	}
	if rule.Name != "" && slices.ContainsFunc(s.Rules, func(o ruleSpec) bool { return o.Name == rule.Name }) {
		r.Fail(n, "two rules are named %s", rule.Name)
	}
}

// referencesField reads names of documents of another kind.
func (r *reader) referencesField(what string, limit int, into *[]reference) strictyaml.Field {
	return r.List(what, limit, func(n *yaml.Node) {
		var name string
		if !r.Read(n, r.Form("an entry of "+what, 63, nameForm, &name)) {
			return
		}
		if slices.ContainsFunc(*into, func(o reference) bool { return o.name == name }) {
			r.Fail(n, "%s lists %s twice", what, name)
			return
		}
		*into = append(*into, reference{name, n.Line})
	})
}

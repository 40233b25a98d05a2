package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"cel.dev/cel-go/cel"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

func compileAll(src documentSet) (*Set, error) {
	env, err := newEnv()
	if err != nil {
		return nil, fmt.Errorf("policy: the CEL environment: %w", err)
	}
	specs := slices.SortedFunc(slices.Values(src.policies), func(a, b spec) int { return cmp.Compare(a.Name, b.Name) })
	set := &Set{groups: compileGroups(src.groups)}
	var errs []error
	for i, s := range specs {
		p, err := compilePolicy(env, s)
		set.policies, errs = append(set.policies, p), append(errs, err)
		set.hasFallbacks = set.hasFallbacks || s.Fallback
		set.hasDefaults = set.hasDefaults || p.level == ScopeDefault
		for _, e := range s.Match.indexEntries() {
			set.index.add(i, e)
		}
	}
	set.anyCoverage = coverageOf(specs)
	set.enforcedCoverage = coverageOf(slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.Action != "" }))
	set.digest, err = digestOf(specs, src.groups)
	return set, errors.Join(append(errs, err)...)
}

func digestOf(specs []spec, groups []groupDoc) (string, error) {
	all := map[string]any{"language": apiVersion, "policies": specs}
	if len(groups) > 0 {
		all["groups"] = slices.SortedFunc(slices.Values(groups), func(a, b groupDoc) int { return cmp.Compare(a.Name, b.Name) })
	}
	canonical, err := events.Encode(all)
	return digest.Plain(canonical), err
}

func compilePolicy(env *cel.Env, s spec) (*policy, error) {
	m := s.Match
	p := &policy{
		name: s.Name, level: s.scopeLevel(), action: s.Action, expiresAfter: s.ExpiresAfter,
		tenants: newOperand(m.Tenants), sources: newOperand(m.Sources), protocols: newOperand(m.Protocols), eventTypes: newOperand(m.EventTypes),
		tools: newOperand(m.Tools), actions: newOperand(m.Actions), kinds: newOperand(m.ResourceKinds), risks: newOperand(m.Risks),
		from: newOperand(m.FromAgents), to: newOperand(m.ToAgents), calls: m.addressesCalls(), handoffs: m.addressesHandoffs(),
		builtin: s.builtin, fallback: s.Fallback, acceptRaw: s.AcceptRaw,
	}
	p.foldedTools, p.foldedFrom, p.foldedTo = p.tools.foldPatterns(), p.from.foldPatterns(), p.to.foldPatterns()
	sc, errs := newPolicyEnv(env, s)
	p.names = sc.names
	named := p.tools != nil || m.hasAgents()
	for _, r := range s.Rules {
		compiled, err := sc.compileRule(s, r)
		p.restrictsNames = p.restrictsNames || named && r.Verdict != events.Allow
		p.rules, errs = append(p.rules, compiled), append(errs, err)
	}
	p.ruleIndex = newRuleIndex(s.Rules, p.rules)
	return p, errors.Join(errs...)
}

// newRuleIndex indexes rules by their match and by the values that their conditions compare
// first. It returns nil if that distinguishes no rule.
func newRuleIndex(specs []ruleSpec, rules []rule) *index {
	x, useful := &index{}, false
	for i, r := range specs {
		m := r.narrowedMatch()
		e := indexEntry{names: m.Tools, actions: m.Actions, events: m.EventTypes}
		if into := map[string]*[]string{"tool": &e.names, "action": &e.actions, "event_type": &e.events}[rules[i].when.variable]; into != nil && len(*into) == 0 && len(m.Tools) == 0 {
			// A rule with tools in its match also applies to names in another case, whatever
			// its condition.
			*into = rules[i].when.values
		}
		useful = useful || len(e.names)+len(e.actions)+len(e.events) > 0
		x.add(i, e)
	}
	if !useful {
		return nil
	}
	return x
}

func (sc *policyEnv) compileRule(s spec, r ruleSpec) (rule, error) {
	m := r.narrowedMatch()
	out := rule{
		id: s.Name + "/" + r.Name, verdict: r.Verdict, reason: r.Reason, message: r.Message, toolResultMode: r.ResultMode == ModeToolResult,
		tools: newOperand(m.Tools), actions: newOperand(m.Actions), eventTypes: newOperand(m.EventTypes),
		approval: s.approvalOf(r).approvalTerms(),
	}
	out.foldedTools = out.tools.foldPatterns()
	var errs []error
	fail := func(line int, err error) {
		if err != nil {
			errs = append(errs, place{s.file, line}.fail("policy %s, rule %s: %v", s.Name, r.Name, err))
		}
	}
	var err error
	out.when, err = sc.compileCondition(r.When)
	fail(r.whenLine, err)
	if l := r.Limit; l != nil {
		out.limit = &limit{max: l.Max, window: l.Per, by: sortedCounterFields(l.By)}
		out.limit.amount, out.limit.unit, err = sc.compileAmount(l.Amount)
		fail(max(l.amountLine, l.line), err)
	}
	if len(m.Tools) > 0 && !s.Match.addressesCalls() {
		fail(r.line, errors.New("match.tools can match nothing: the policy speaks on handoffs, which have no tool"))
	}
	return out, errors.Join(errs...)
}

// indexEntries are the entries under which the index finds a policy.
func (m match) indexEntries() (list []indexEntry) {
	if m.addressesCalls() {
		list = append(list, indexEntry{tenants: m.Tenants, names: m.Tools, actions: m.Actions, events: m.EventTypes})
	}
	if m.addressesHandoffs() {
		list = append(list, indexEntry{tenants: m.Tenants, names: m.ToAgents, actions: m.Actions, events: m.EventTypes, handoff: true})
	}
	return list
}

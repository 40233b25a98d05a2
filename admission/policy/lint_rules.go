package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
	"github.com/countersign-dev/countersign/events"
)

// evalConstant evaluates an expression that does not depend on the request. known is false for
// all others, and for those without a truth value.
func (p *lintedPolicy) evalConstant(e expression) (value, known bool) {
	if !isConstant(e.root()) {
		return false, false
	}
	planned, err := p.sc.planProgram("", e.ast)
	if err != nil {
		return false, false
	}
	spent := &budget{}
	out, _, err := planned.run(&policyActivation{inputActivation: inputActivation{&Input{}, spent}, names: p.sc.names}, spent)
	b, isBool := out.(types.Bool)
	return bool(b), err == nil && isBool
}

// isConstant reports whether an expression uses constants only.
func isConstant(e celast.Expr) bool {
	if e.Kind() == celast.IdentKind {
		_, input := inputVariables[e.AsIdent()]
		return !input && !strings.HasPrefix(e.AsIdent(), variablesPrefix)
	}
	return !slices.ContainsFunc(expr.Children(e), func(c celast.Expr) bool { return !isConstant(c) })
}

// conditionTruth returns the constant value of a rule's condition, if it has one.
func (p *lintedPolicy) conditionTruth(i int) (value, known bool) {
	e := p.when[i]
	if value, known := p.evalConstant(e); known {
		return value, true
	}
	for _, c := range expr.Conjuncts(e.root()) {
		if c.Kind() == celast.LiteralKind && c.AsLiteral() == types.False {
			return false, true
		}
	}
	return false, false
}

// checkDeadRules finds rules that never match: their condition is always false, or requires
// what the match excludes.
func (p *lintedPolicy) checkDeadRules() {
	for i, r := range p.Rules {
		rule := p.Name + "/" + r.Name
		if value, known := p.conditionTruth(i); known && !value {
			p.warn(r.whenLine, rule, LintDeadRule, "the condition is false, whatever the call")
			continue
		}
		m := r.narrowedMatch()
		for _, o := range []struct {
			name         string
			outer, inner []string
		}{{"tools", p.Match.Tools, m.Tools}, {"actions", p.Match.Actions, m.Actions}, {"eventTypes", p.Match.EventTypes, m.EventTypes}} {
			if excludesAll(o.outer, o.inner) {
				p.warn(r.line, rule, LintDeadRule, fmt.Sprintf("match.%s of the rule and of its policy have nothing in common", o.name))
			}
		}
		for _, c := range expr.Conjuncts(p.when[i].root()) {
			if variable, values := expr.RequiredValues(c); len(values) > 0 && p.neverMatches(variable, values, m) {
				p.warn(r.whenLine, rule, LintDeadRule, fmt.Sprintf("the condition wants another %s than match lets through", variable))
			}
		}
	}
}

// excludesAll reports whether no exact entry of inner can match outer. It reports false if
// inner has patterns.
func excludesAll(outer, inner []string) bool {
	o := newOperand(outer)
	return len(outer) > 0 && len(inner) > 0 && !slices.ContainsFunc(inner, func(v string) bool { return isGlob(v) || o.matches(v) })
}

func (p *lintedPolicy) neverMatches(variable string, values []string, narrow ruleMatch) bool {
	m := p.Match
	operands := map[string][][]string{
		"tenant": {m.Tenants}, "source": {m.Sources}, "protocol": {m.Protocols}, "event_type": {m.EventTypes, narrow.EventTypes},
		"tool": {m.Tools, narrow.Tools}, "action": {m.Actions, narrow.Actions}, "resource_kind": {m.ResourceKinds},
		"from_agent": {m.FromAgents}, "to_agent": {m.ToAgents},
	}
	return slices.ContainsFunc(operands[variable], func(outer []string) bool { return excludesAll(outer, values) })
}

// checkCatchAll finds rules that allow everything. Over the protocols with an evaluator of their own such a
// rule says that it decides alone.
func (p *lintedPolicy) checkCatchAll() {
	if onlyJudged(p.Match.Protocols) {
		return
	}
	for i, r := range p.Rules {
		if value, known := p.conditionTruth(i); r.Verdict == events.Allow && known && value && !p.narrows(r) && p.Action == "" && r.Limit == nil {
			p.warn(r.line, p.Name+"/"+r.Name, LintCatchAllAllow, "the rule allows every call that no other rule objects to")
		}
	}
}

// narrows reports whether the match of a policy or of its rule says more of a call than its tenant, source and
// protocol.
func (p *lintedPolicy) narrows(r ruleSpec) bool {
	m, n := p.Match, r.narrowedMatch()
	return slices.ContainsFunc([][]string{m.Tools, m.Actions, m.ResourceKinds, m.Risks, m.EventTypes, m.FromAgents, m.ToAgents, n.Tools, n.Actions, n.EventTypes}, isSelective)
}

// checkBuiltin finds a built-in policy that opens what other policies allow in part: it allows whatever no
// rule denies or asks for.
func (l *linter) checkBuiltin() {
	lists := slices.ContainsFunc(l.policies, func(p *lintedPolicy) bool {
		return p.Action == "" && p.Match.addressesCalls() && slices.ContainsFunc(p.Rules, func(r ruleSpec) bool { return r.Verdict == events.Allow })
	})
	for _, s := range l.src.policies {
		if s.builtin && lists {
			l.add(s.place, s.Name+"/"+s.Rules[0].Name, LintCatchAllAllow, SeverityWarning, "the built-in policy allows every call, of every tenant and protocol, that no other rule objects to: what the other policies allow is no limit any more")
		}
	}
}

// isSelective reports whether an operand excludes anything.
func isSelective(patterns []string) bool {
	return len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool { return strings.Trim(p, "*") == "" })
}

// checkLimits finds limits with a counter that all callers of a tenant share.
func (p *lintedPolicy) checkLimits() {
	for _, r := range p.Rules {
		if r.Limit != nil && len(sortedCounterFields(r.Limit.By)) == 0 {
			p.add(p.placeAt(r.Limit.line), p.Name+"/"+r.Name, LintLimitWithoutBy, SeverityInfo, "all callers of a tenant share one counter")
		}
	}
}

// checkUnused finds params and variables that no expression reads.
func (p *lintedPolicy) checkUnused() {
	used := map[string]bool{}
	for _, e := range p.exprs {
		for _, prefix := range []string{paramsPrefix, variablesPrefix} {
			for _, name := range referencedNames(e.ast, prefix) {
				used[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.paramLines)) {
		if !used[paramsPrefix+name] {
			p.warn(p.paramLines[name], "", LintUnusedParam, "no expression reads "+paramsPrefix+name)
		}
	}
	for _, v := range p.Variables {
		if !used[variablesPrefix+v.Name] {
			p.warn(v.line, "", LintUnusedVariable, "no expression reads "+variablesPrefix+v.Name)
		}
	}
}

// ruleAt is a rule with its policy.
type ruleAt struct {
	*lintedPolicy
	rule               ruleSpec
	id                 string
	when, match, limit string // canonical
	always             bool   // the condition is always true
}

// groupRules groups all rules by what their policies match.
func (l *linter) groupRules() map[string][]ruleAt {
	areas := map[string][]ruleAt{}
	for _, p := range l.policies {
		area := fmt.Sprint(canonicalText(p.Match), p.Scope, p.Action, p.Fallback, p.AcceptRaw, canonicalText(p.Params), canonicalText(p.Variables))
		for i, r := range p.Rules {
			when, err := cel.AstToString(p.when[i].ast)
			if err != nil {
				when = r.When
			}
			value, known := p.conditionTruth(i)
			at := ruleAt{lintedPolicy: p, rule: r, id: p.Name + "/" + r.Name, when: when, always: known && value}
			if m := r.narrowedMatch(); !m.empty() {
				at.match = canonicalText(m)
			}
			if r.Limit != nil {
				at.limit = canonicalText(r.Limit)
			}
			areas[area] = append(areas[area], at)
		}
	}
	return areas
}

func canonicalText(v any) string {
	b, _ := json.Marshal(v) // of plain texts: it cannot fail
	return string(b)
}

// covers reports whether a matches whenever b, a rule of the same group, does.
func (a *ruleAt) covers(b *ruleAt) bool {
	return (a.match == "" || a.match == b.match) && (a.always || a.when == b.when) && (a.limit == "" || a.limit == b.limit)
}

// checkDuplicates finds rules that another rule makes redundant. The order does not matter: the
// strictest wins.
func (l *linter) checkDuplicates() {
	for _, rules := range l.groupRules() {
		for i := range rules {
			for j := range rules {
				r, o := &rules[i], &rules[j]
				switch {
				case i == j || !o.covers(r):
				case o.rule.Verdict.Strictness() > r.rule.Verdict.Strictness():
					r.warn(r.rule.line, r.id, LintShadowedRule, fmt.Sprintf("whenever it matches, %s says %s", o.id, o.rule.Verdict))
				case o.rule.Verdict == r.rule.Verdict && j < i && r.covers(o):
					r.warn(r.rule.line, r.id, LintDuplicateRule, "it says the same as "+o.id)
				}
			}
		}
	}
}

// checkWholeSet checks what concerns the set as a whole.
func (l *linter) checkWholeSet() {
	from, groups := map[string]bool{}, map[string]bool{}
	enforced := false
	compiled := compileGroups(l.src.groups)
	for _, s := range l.src.policies {
		enforced = enforced || s.Action == ""
		for _, ref := range s.paramsFrom {
			from[ref.name] = true
		}
		l.checkQuorums(s, s.Approval, compiled, groups)
		for _, r := range s.Rules {
			if r.Approval != nil {
				l.checkQuorums(s, s.approvalOf(r), compiled, groups)
			}
		}
	}
	for _, d := range l.src.params {
		if !from[d.name] {
			l.add(d.place, "", LintUnusedParam, SeverityWarning, "no policy names "+d.name+" in paramsFrom")
		}
	}
	for _, g := range l.src.groups {
		if !groups[g.Name] {
			l.add(g.place, "", LintUnusedGroup, SeverityWarning, "no approval names the reviewers "+g.Name)
		}
	}
	if !enforced && len(l.src.policies) > 0 {
		l.add(l.src.policies[0].place, "", LintNothingEnforced, SeverityWarning, "no policy of the set enforces anything")
	}
}

// checkJudged finds tenants of which no policy speaks of all calls over the protocols that have an evaluator of
// their own.
func (l *linter) checkJudged() {
	seen := map[string]bool{}
	for _, p := range l.policies {
		tenants := p.Match.Tenants
		if len(tenants) == 0 {
			tenants = []string{"*"}
		}
		for _, tenant := range tenants {
			if p.Action != "" || seen[tenant] {
				continue
			}
			seen[tenant] = true
			whom := "tenant " + tenant
			if tenant == "*" {
				whom = "all tenants"
			}
			alone := slices.DeleteFunc(slices.Clone(judgedProtocols), func(protocol string) bool { return l.reaches(tenant, protocol) })
			if len(alone) > 0 {
				l.add(p.place, "", LintEvaluatorAlone, SeverityInfo, fmt.Sprintf("no policy for %s speaks of all calls over the protocols %s: there the protocol's evaluator alone decides what no rule denies or asks for", whom, strings.Join(alone, ", ")))
			}
		}
	}
}

// reaches reports whether a policy that decides speaks of all of a tenant's requests of a protocol: it names
// the protocol, or has a rule for all calls, whatever their tool. The protocols with an evaluator have no event
// types in common with others.
func (l *linter) reaches(tenant, protocol string) bool {
	if slices.ContainsFunc(l.src.policies, func(s spec) bool { return s.builtin }) {
		return true
	}
	return slices.ContainsFunc(l.policies, func(p *lintedPolicy) bool {
		m := p.Match
		applies := p.Action == "" && len(m.EventTypes) == 0 && m.reachesProtocol(protocol) && newOperand(m.Tenants).matches(tenant)
		return applies && (len(m.Protocols) > 0 || p.hasRuleForAll())
	})
}

// hasRuleForAll reports whether a policy has a rule for all calls that its tenants and protocols let through:
// one that does not allow, or that allows them all.
func (p *lintedPolicy) hasRuleForAll() bool {
	for i, r := range p.Rules {
		value, known := p.conditionTruth(i)
		if !p.narrows(r) && (r.Verdict != events.Allow || known && value) {
			return true
		}
	}
	return false
}

// checkQuorums finds tenants that have too few reviewers for an approval.
func (l *linter) checkQuorums(s spec, a *approvalSpec, groups map[string]group, named map[string]bool) {
	if a == nil || len(a.Reviewers) == 0 {
		return
	}
	for _, tenant := range s.Match.Tenants {
		if isGlob(tenant) {
			continue
		}
		users := map[string]bool{}
		for _, name := range a.Reviewers {
			if g := groups[name]; g.tenants.matches(tenant) {
				for _, u := range g.members {
					users[u] = true
				}
			}
		}
		if want := max(1, int(a.Quorum)); len(users) < want {
			l.add(place{s.file, a.line}, "", LintUnreachableQuorum, SeverityWarning, fmt.Sprintf("the approval wants %d reviewers, and tenant %s has %d", want, tenant, len(users)))
		}
	}
	for _, name := range a.Reviewers {
		named[name] = true
	}
}

package policy

import (
	"slices"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
	"github.com/countersign-dev/countersign/events"
)

// claimVariables are the variables that hold a runtime's claims about itself and its call.
// Nothing verifies them.
var claimVariables = []string{"action", "risk", "resource", "resource_kind", "resource_scope", "session", "agent", "event"}

// factVariables are the variables that a runtime cannot change without making another call: the
// tool, its arguments, the authenticated source, and the catalogue's entry.
var factVariables = []string{"tool", "args", "agent_tool", "source", "catalog", "from_agent", "to_agent"}

// eventFacts are the members of event that are facts of the call.
var eventFacts = []string{"event.tool_name", "event.tool_input"}

// checkClaims finds rules that allow a call for nothing but the runtime's claims. A match that
// names one tool exactly is a fact; one that names several leaves it to the claim which of them
// is harmless.
func (p *lintedPolicy) checkClaims() {
	for i, r := range p.Rules {
		if r.Verdict != events.Allow || p.Action != "" {
			continue
		}
		n := r.narrowedMatch()
		if onlyOne(p.Match.Tools) || onlyOne(n.Tools) {
			continue
		}
		when := p.when[i].root()
		matched := slices.ContainsFunc([][]string{p.Match.Actions, p.Match.Risks, p.Match.ResourceKinds, n.Actions}, isSelective)
		if (matched || p.containsExpr(when, isClaim)) && !p.restsOnFacts(when) {
			p.warn(r.whenLine, p.Name+"/"+r.Name, LintClaimAlone, "the rule allows calls for what the runtime says of them; nothing else that it looks at tells a harmless call from another")
		}
	}
}

// byClaims finds limits with one counter for each value of a claim: with another claim a
// runtime gets another counter. A session is a claim too, but a limit for each session says
// what it bounds.
func (p *lintedPolicy) byClaims() {
	for _, r := range p.Rules {
		if r.Limit == nil {
			continue
		}
		for _, by := range []string{"agent", "action"} {
			if slices.Contains(r.Limit.By, by) {
				p.warn(r.Limit.line, p.Name+"/"+r.Name, LintClaimAlone, "limit.by has "+by+", which the runtime says of itself: a call that says something else is counted anew")
			}
		}
	}
}

// onlyOne reports whether an operand lets exactly one value through.
func onlyOne(patterns []string) bool { return len(patterns) == 1 && !isGlob(patterns[0]) }

// restsOnFacts reports whether an expression can be true only because of a fact, not of claims
// alone.
func (p *lintedPolicy) restsOnFacts(e celast.Expr) bool {
	if v, known := p.variableOf(e); known {
		return p.restsOnFacts(v)
	}
	switch function, args := expr.Call(e); function {
	case operators.LogicalAnd:
		return slices.ContainsFunc(args, p.restsOnFacts)
	case operators.LogicalOr:
		return !slices.ContainsFunc(args, func(a celast.Expr) bool { return !p.restsOnFacts(a) })
	}
	return p.containsExpr(e, isFact)
}

func (p *lintedPolicy) variableOf(e celast.Expr) (celast.Expr, bool) {
	if e.Kind() != celast.IdentKind {
		return nil, false
	}
	v, known := p.variables[e.AsIdent()]
	return v, known
}

// containsExpr reports whether an expression, or a variable that it uses, contains a
// subexpression that satisfies is.
func (p *lintedPolicy) containsExpr(e celast.Expr, is func(celast.Expr) bool) bool {
	if v, known := p.variableOf(e); known {
		return p.containsExpr(v, is)
	}
	return is(e) || slices.ContainsFunc(expr.Children(e), func(c celast.Expr) bool { return p.containsExpr(c, is) })
}

func isFact(e celast.Expr) bool {
	if e.Kind() == celast.IdentKind {
		return slices.Contains(factVariables, e.AsIdent())
	}
	return slices.Contains(eventFacts, pathOf(e))
}

func isClaim(e celast.Expr) bool {
	return e.Kind() == celast.IdentKind && slices.Contains(claimVariables, e.AsIdent())
}

package policy

import (
	"slices"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/countersign-dev/countersign/events"
)

// claimed are the variables that hold what a runtime says of itself and of its
// call. Nothing checks them.
var claimed = []string{"action", "risk", "resource", "resource_kind", "resource_scope", "session", "agent", "event"}

// checked are the variables that a call cannot choose freely without becoming
// another call: what runs, with what, by whom, and what the catalogue says of it.
var checked = []string{"tool", "args", "source", "catalog", "from_agent", "to_agent"}

// eventFacts are the members of event that are facts of the call.
var eventFacts = []string{"event.tool_name", "event.tool_input"}

// claims finds rules that allow a call for nothing but what the runtime says of
// it. A match that names one tool exactly says what runs; one that names several
// leaves it to the claim which of them is harmless.
func (p *linted) claims() {
	for i, r := range p.Rules {
		if r.Verdict != events.Allow || p.Action != "" {
			continue
		}
		n := r.narrowing()
		if onlyOne(p.Match.Tools) || onlyOne(n.Tools) {
			continue
		}
		when := p.when[i].root()
		matched := slices.ContainsFunc([][]string{p.Match.Actions, p.Match.Risks, p.Match.ResourceKinds, n.Actions}, selects)
		if (matched || p.mentions(when, isClaim)) && !p.grounded(when) {
			p.warn(r.whenLine, p.Name+"/"+r.Name, LintClaimAlone, "the rule allows calls for what the runtime says of them; nothing else that it looks at tells a harmless call from another")
		}
	}
}

// byClaims finds limits with a counter for each value of something that the runtime says
// of itself: with another word it gets another counter. A session is a claim, too, but a
// limit for each session says what it bounds.
func (p *linted) byClaims() {
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

// grounded reports whether an expression is true only where something that is no
// claim says so.
func (p *linted) grounded(e celast.Expr) bool {
	if v, known := p.variableOf(e); known {
		return p.grounded(v)
	}
	switch function, args := callOf(e); function {
	case operators.LogicalAnd:
		return slices.ContainsFunc(args, p.grounded)
	case operators.LogicalOr:
		return !slices.ContainsFunc(args, func(a celast.Expr) bool { return !p.grounded(a) })
	}
	return p.mentions(e, isFact)
}

func (p *linted) variableOf(e celast.Expr) (celast.Expr, bool) {
	if e.Kind() != celast.IdentKind {
		return nil, false
	}
	v, known := p.variables[e.AsIdent()]
	return v, known
}

// mentions reports whether something in an expression, or in the variables that it
// uses, is of a kind.
func (p *linted) mentions(e celast.Expr, is func(celast.Expr) bool) bool {
	if v, known := p.variableOf(e); known {
		return p.mentions(v, is)
	}
	return is(e) || slices.ContainsFunc(children(e), func(c celast.Expr) bool { return p.mentions(c, is) })
}

func isFact(e celast.Expr) bool {
	if e.Kind() == celast.IdentKind {
		return slices.Contains(checked, e.AsIdent())
	}
	return slices.Contains(eventFacts, pathOf(e))
}

func isClaim(e celast.Expr) bool {
	return e.Kind() == celast.IdentKind && slices.Contains(claimed, e.AsIdent())
}

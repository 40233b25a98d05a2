package policy

import (
	"fmt"
	"slices"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
)

// checkGrowth warns of conditions that can create far more than the request holds: a loop that
// builds a new text, list or map from a part of the request in every round, and a call that
// multiplies two sizes of the request.
func (p *lintedPolicy) checkGrowth() {
	for _, e := range p.exprs {
		seen := map[string]bool{}
		p.walkGrowth(e, e.root(), nil, func(what string) {
			if !seen[what] {
				seen[what] = true
				p.warn(e.line, e.rule, LintUnboundedGrowth, what)
			}
		})
	}
}

// allocatingFuncs are the functions that create a text or list of about the size of their
// arguments.
var allocatingFuncs = []string{operators.Add, "replace", "join", "format", "split", "substring", "lowerAscii", "upperAscii", "reverse", "trim", "strings.quote", "bytes", "string"}

// multiplyingFuncs are the functions of which one call multiplies two sizes, each with the
// index of the argument that is the second size.
var multiplyingFuncs = map[string]int{"replace": 1, "join": 0, "format": -1}

// walkGrowth reports every growing subexpression to tell. loops are the variables of the
// enclosing loops.
func (p *lintedPolicy) walkGrowth(in expression, e celast.Expr, loops []string, tell func(string)) {
	switch e.Kind() {
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		p.walkGrowth(in, c.IterRange(), loops, tell)
		inner := append(slices.Clone(loops), c.IterVar(), c.IterVar2(), c.AccuVar())
		p.walkGrowth(in, c.LoopCondition(), inner, tell)
		p.walkGrowth(in, c.LoopStep(), inner, tell)
		p.walkGrowth(in, c.Result(), loops, tell)
		return
	case celast.ListKind, celast.MapKind:
		if len(loops) > 0 && slices.ContainsFunc(expr.Children(e), func(c celast.Expr) bool { return p.isWholeInput(in, c) }) {
			tell("a loop makes a list or map that holds something of the request in every round")
		}
	case celast.CallKind:
		c := e.AsCall()
		args := expr.Children(e)
		switch name := c.FunctionName(); {
		case len(loops) > 0 && (slices.Contains(allocatingFuncs, name) || functions.Grows(name)) && hasSize(in, e) && slices.ContainsFunc(args, func(a celast.Expr) bool { return p.isWholeInput(in, a) }):
			tell(fmt.Sprintf("a loop makes a new value with %s out of something of the request in every round", nameOfCall(name)))
		case isMultiplying(c) && p.isWholeInput(in, multiplierArg(c)):
			tell(fmt.Sprintf("%s multiplies the size of one part of the request by another", name))
		}
	}
	for _, c := range expr.Children(e) {
		p.walkGrowth(in, c, loops, tell)
	}
}

func nameOfCall(name string) string {
	if name == operators.Add {
		return "+"
	}
	return name
}

// isMultiplying reports whether a call creates more than its arguments hold.
func isMultiplying(c celast.CallExpr) bool {
	at, known := multiplyingFuncs[c.FunctionName()]
	return known && c.IsMemberFunction() && at < len(c.Args())
}

// multiplierArg returns the argument that multiplies the size of a call's result.
func multiplierArg(c celast.CallExpr) celast.Expr {
	if at := multiplyingFuncs[c.FunctionName()]; at >= 0 {
		return c.Args()[at]
	}
	return c.Target()
}

// hasSize reports whether an expression is, or may be, a text or list.
func hasSize(in expression, e celast.Expr) bool {
	switch in.ast.NativeRep().GetType(e.ID()).Kind() {
	case types.StringKind, types.BytesKind, types.ListKind, types.MapKind, types.DynKind, types.StructKind:
		return true
	}
	return false
}

// isWholeInput reports whether an expression is a part of the request that does not depend on a
// loop variable: it has the same size in every round. A policy's variable counts as its
// expression.
func (p *lintedPolicy) isWholeInput(in expression, e celast.Expr) bool {
	if !hasSize(in, e) {
		return false
	}
	return p.readsRequest(e)
}

func (p *lintedPolicy) readsRequest(e celast.Expr) bool {
	switch e.Kind() {
	case celast.IdentKind:
		if v, known := p.variables[e.AsIdent()]; known {
			return p.readsRequest(v)
		}
		return e.AsIdent() == "agent_tool" || slices.Contains(optionalVariables, e.AsIdent())
	case celast.SelectKind:
		return !e.AsSelect().IsTestOnly() && p.readsRequest(e.AsSelect().Operand())
	case celast.CallKind:
		name := e.AsCall().FunctionName()
		made := name == operators.Index || name == operators.Conditional || slices.Contains(allocatingFuncs, name) || functions.Grows(name)
		return made && slices.ContainsFunc(expr.Children(e), p.readsRequest)
	}
	return false
}

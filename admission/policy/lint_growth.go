package policy

import (
	"fmt"
	"slices"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// growth warns of conditions that can make far more than the request holds: a
// loop that makes a new text, list or map out of something of the request in every
// round, and a call that multiplies two sizes of the request.
func (p *linted) growth() {
	for _, e := range p.exprs {
		seen := map[string]bool{}
		p.grows(e, e.root(), nil, func(what string) {
			if !seen[what] {
				seen[what] = true
				p.warn(e.line, e.rule, LintUnboundedGrowth, what)
			}
		})
	}
}

// making are the functions that make a new text or list of about the size of
// their arguments.
var making = []string{operators.Add, "replace", "join", "format", "split", "substring", "lowerAscii", "upperAscii", "reverse", "trim", "strings.quote", "bytes", "string"}

// multiplying are the functions of which one call multiplies two sizes, with the
// argument that is the second of them.
var multiplying = map[string]int{"replace": 1, "join": 0, "format": -1}

// grows tells of everything in an expression that grows. loops are the variables
// of the loops around it.
func (p *linted) grows(in expression, e celast.Expr, loops []string, tell func(string)) {
	switch e.Kind() {
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		p.grows(in, c.IterRange(), loops, tell)
		inner := append(slices.Clone(loops), c.IterVar(), c.IterVar2(), c.AccuVar())
		p.grows(in, c.LoopCondition(), inner, tell)
		p.grows(in, c.LoopStep(), inner, tell)
		p.grows(in, c.Result(), loops, tell)
		return
	case celast.ListKind, celast.MapKind:
		if len(loops) > 0 && slices.ContainsFunc(children(e), func(c celast.Expr) bool { return p.whole(in, c) }) {
			tell("a loop makes a list or map that holds something of the request in every round")
		}
	case celast.CallKind:
		c := e.AsCall()
		args := children(e)
		switch name := c.FunctionName(); {
		case len(loops) > 0 && slices.Contains(making, name) && p.sized(in, e) && slices.ContainsFunc(args, func(a celast.Expr) bool { return p.whole(in, a) }):
			tell(fmt.Sprintf("a loop makes a new value with %s out of something of the request in every round", nameOfCall(name)))
		case multiplies(c) && p.whole(in, multiplied(c)):
			tell(fmt.Sprintf("%s multiplies the size of one part of the request by another", name))
		}
	}
	for _, c := range children(e) {
		p.grows(in, c, loops, tell)
	}
}

func nameOfCall(name string) string {
	if name == operators.Add {
		return "+"
	}
	return name
}

// multiplies reports whether a call makes more than its arguments hold.
func multiplies(c celast.CallExpr) bool {
	at, known := multiplying[c.FunctionName()]
	return known && c.IsMemberFunction() && at < len(c.Args())
}

// multiplied is the argument by which a call multiplies.
func multiplied(c celast.CallExpr) celast.Expr {
	if at := multiplying[c.FunctionName()]; at >= 0 {
		return c.Args()[at]
	}
	return c.Target()
}

// sized reports whether an expression is, or may be, a text or list.
func (p *linted) sized(in expression, e celast.Expr) bool {
	switch in.ast.NativeRep().GetType(e.ID()).Kind() {
	case types.StringKind, types.BytesKind, types.ListKind, types.MapKind, types.DynKind:
		return true
	}
	return false
}

// whole reports whether an expression is a part of the request that is no element
// of what a loop goes through: it has the same size in every round. A policy's
// variable counts as what it stands for.
func (p *linted) whole(in expression, e celast.Expr) bool {
	if !p.sized(in, e) {
		return false
	}
	return p.ofRequest(e)
}

func (p *linted) ofRequest(e celast.Expr) bool {
	switch e.Kind() {
	case celast.IdentKind:
		if v, known := p.variables[e.AsIdent()]; known {
			return p.ofRequest(v)
		}
		return slices.Contains(open, e.AsIdent())
	case celast.SelectKind:
		return !e.AsSelect().IsTestOnly() && p.ofRequest(e.AsSelect().Operand())
	case celast.CallKind:
		name := e.AsCall().FunctionName()
		made := name == operators.Index || name == operators.Conditional || slices.Contains(making, name)
		return made && slices.ContainsFunc(children(e), p.ofRequest)
	}
	return false
}

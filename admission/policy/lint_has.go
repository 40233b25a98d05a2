package policy

import (
	"fmt"
	"slices"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
)

// optionalVariables are the variables of which a request may omit any member.
var optionalVariables = []string{"args", "event", "resource", "risk", "catalog"}

// presentMembers are members that are never missing.
var presentMembers = []string{"catalog.known"}

// pathSet is a set of members that are known to be present.
type pathSet map[string]bool

func (a pathSet) union(b pathSet) pathSet {
	if len(b) == 0 {
		return a
	}
	out := pathSet{}
	for p := range a {
		out[p] = true
	}
	for p := range b {
		out[p] = true
	}
	return out
}

func (a pathSet) intersect(b pathSet) pathSet {
	out := pathSet{}
	for p := range a {
		if b[p] {
			out[p] = true
		}
	}
	return out
}

// checkPresence warns of members that are read without a has() check.
func (p *lintedPolicy) checkPresence() {
	for _, e := range p.exprs {
		seen := pathSet{}
		p.walkReads(e.root(), pathSet{}, func(path string) {
			if !seen[path] {
				seen[path] = true
				p.warn(e.line, e.rule, LintMissingHas, fmt.Sprintf("%s is read and may not be there; no has(%s) stands before it", path, path))
			}
		})
	}
}

// pathOf returns the path of a member of a request, such as args.to.0; "" for any other
// expression.
func pathOf(e celast.Expr) string {
	switch e.Kind() {
	case celast.IdentKind:
		if slices.Contains(optionalVariables, e.AsIdent()) {
			return e.AsIdent()
		}
	case celast.SelectKind:
		return joinPath(pathOf(e.AsSelect().Operand()), e.AsSelect().FieldName())
	case celast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.Index {
			return joinPath(pathOf(c.Args()[0]), expr.LiteralText(c.Args()[1]))
		}
	}
	return ""
}

func joinPath(path, member string) string {
	if path == "" || member == "" {
		return ""
	}
	return path + "." + member
}

// walkReads reports every member that an expression reads without proof that it is present. CEL
// ignores an error in an operand of && where another operand is false, and of || where another
// is true, in any order.
func (p *lintedPolicy) walkReads(e celast.Expr, there pathSet, missing func(string)) {
	switch function, args := expr.Call(e); function {
	case operators.LogicalAnd, operators.LogicalOr:
		for i, arg := range args {
			known := there
			for j, other := range args {
				if i != j {
					known = known.union(p.knownPresent(other, function == operators.LogicalAnd))
				}
			}
			p.walkReads(arg, known, missing)
		}
		return
	case operators.Conditional:
		p.walkReads(args[0], there, missing)
		p.walkReads(args[1], there.union(p.knownPresent(args[0], true)), missing)
		p.walkReads(args[2], there.union(p.knownPresent(args[0], false)), missing)
		return
	}
	tests := e.Kind() == celast.SelectKind && e.AsSelect().IsTestOnly()
	if path := pathOf(e); path != "" && !tests && !slices.Contains(optionalVariables, path) && !there[path] && !slices.Contains(presentMembers, path) {
		missing(path)
	}
	for _, c := range expr.Children(e) {
		p.walkReads(c, there, missing)
	}
}

// knownPresent are the members that are present if an expression has the given value.
func (p *lintedPolicy) knownPresent(e celast.Expr, value bool) pathSet {
	if e.Kind() == celast.SelectKind && e.AsSelect().IsTestOnly() {
		if value {
			return withParents(pathOf(e))
		}
		return nil
	}
	if e.Kind() == celast.IdentKind {
		if v, known := p.variables[e.AsIdent()]; known {
			return p.knownPresent(v, value)
		}
	}
	switch function, args := expr.Call(e); function {
	case operators.LogicalNot:
		return p.knownPresent(args[0], !value)
	case operators.In:
		if value {
			return withParents(joinPath(pathOf(args[1]), expr.LiteralText(args[0])))
		}
	case operators.LogicalAnd, operators.LogicalOr:
		all := (function == operators.LogicalAnd) == value // every operand has the value
		out := p.knownPresent(args[0], value)
		for _, arg := range args[1:] {
			if all {
				out = out.union(p.knownPresent(arg, value))
			} else {
				out = out.intersect(p.knownPresent(arg, value))
			}
		}
		return out
	}
	return nil
}

// withParents returns a member and all its parents.
func withParents(path string) pathSet {
	if path == "" {
		return nil
	}
	out := pathSet{path: true}
	for i := range path {
		if path[i] == '.' {
			out[path[:i]] = true
		}
	}
	return out
}

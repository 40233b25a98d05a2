package policy

import (
	"fmt"
	"slices"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// open are the variables of which a request may leave out any member.
var open = []string{"args", "event", "resource", "risk", "catalog"}

// always are members that are never missing.
var always = []string{"catalog.known"}

// paths is a set of members that are known to be there.
type paths map[string]bool

func (a paths) with(b paths) paths {
	if len(b) == 0 {
		return a
	}
	out := paths{}
	for p := range a {
		out[p] = true
	}
	for p := range b {
		out[p] = true
	}
	return out
}

func (a paths) and(b paths) paths {
	out := paths{}
	for p := range a {
		if b[p] {
			out[p] = true
		}
	}
	return out
}

// presence warns of members that are read without a look whether they are there.
func (p *linted) presence() {
	for _, e := range p.exprs {
		seen := paths{}
		p.reads(e.root(), paths{}, func(path string) {
			if !seen[path] {
				seen[path] = true
				p.warn(e.line, e.rule, LintMissingHas, fmt.Sprintf("%s is read and may not be there; no has(%s) stands before it", path, path))
			}
		})
	}
}

// pathOf names a member of a request, such as args.to.0; "" for anything else.
func pathOf(e celast.Expr) string {
	switch e.Kind() {
	case celast.IdentKind:
		if slices.Contains(open, e.AsIdent()) {
			return e.AsIdent()
		}
	case celast.SelectKind:
		return joined(pathOf(e.AsSelect().Operand()), e.AsSelect().FieldName())
	case celast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.Index {
			return joined(pathOf(c.Args()[0]), literal(c.Args()[1]))
		}
	}
	return ""
}

func joined(path, member string) string {
	if path == "" || member == "" {
		return ""
	}
	return path + "." + member
}

// reads tells of every member that an expression reads while nothing shows that
// it is there. An operand of && is not minded where another one is false, nor one
// of || where another is true, in whatever order they stand.
func (p *linted) reads(e celast.Expr, there paths, missing func(string)) {
	switch function, args := callOf(e); function {
	case operators.LogicalAnd, operators.LogicalOr:
		for i, arg := range args {
			known := there
			for j, other := range args {
				if i != j {
					known = known.with(p.shown(other, function == operators.LogicalAnd))
				}
			}
			p.reads(arg, known, missing)
		}
		return
	case operators.Conditional:
		p.reads(args[0], there, missing)
		p.reads(args[1], there.with(p.shown(args[0], true)), missing)
		p.reads(args[2], there.with(p.shown(args[0], false)), missing)
		return
	}
	tests := e.Kind() == celast.SelectKind && e.AsSelect().IsTestOnly()
	if path := pathOf(e); path != "" && !tests && !slices.Contains(open, path) && !there[path] && !slices.Contains(always, path) {
		missing(path)
	}
	for _, c := range children(e) {
		p.reads(c, there, missing)
	}
}

// shown are the members that are there if an expression has a value.
func (p *linted) shown(e celast.Expr, value bool) paths {
	if e.Kind() == celast.SelectKind && e.AsSelect().IsTestOnly() {
		if value {
			return withParents(pathOf(e))
		}
		return nil
	}
	if e.Kind() == celast.IdentKind {
		if v, known := p.variables[e.AsIdent()]; known {
			return p.shown(v, value)
		}
	}
	switch function, args := callOf(e); function {
	case operators.LogicalNot:
		return p.shown(args[0], !value)
	case operators.In:
		if value {
			return withParents(joined(pathOf(args[1]), literal(args[0])))
		}
	case operators.LogicalAnd, operators.LogicalOr:
		all := (function == operators.LogicalAnd) == value // every operand has the value
		out := p.shown(args[0], value)
		for _, arg := range args[1:] {
			if all {
				out = out.with(p.shown(arg, value))
			} else {
				out = out.and(p.shown(arg, value))
			}
		}
		return out
	}
	return nil
}

// withParents is a member and all that it is a member of.
func withParents(path string) paths {
	if path == "" {
		return nil
	}
	out := paths{path: true}
	for i := range path {
		if path[i] == '.' {
			out[path[:i]] = true
		}
	}
	return out
}

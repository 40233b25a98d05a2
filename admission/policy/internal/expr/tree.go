// Package expr reads the trees of CEL expressions.
package expr

import (
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// Conjuncts are the parts of a condition that must all be true.
func Conjuncts(e celast.Expr) []celast.Expr {
	function, args := Call(e)
	if function != operators.LogicalAnd {
		return []celast.Expr{e}
	}
	var list []celast.Expr
	for _, a := range args {
		list = append(list, Conjuncts(a)...)
	}
	return list
}

// RequiredValues reads "variable == text" and "variable in [texts]".
func RequiredValues(e celast.Expr) (variable string, values []string) {
	function, args := Call(e)
	if len(args) != 2 {
		return "", nil
	}
	left, right := args[0], args[1]
	if function == operators.Equals && left.Kind() == celast.LiteralKind {
		left, right = right, left
	}
	if left.Kind() != celast.IdentKind {
		return "", nil
	}
	switch {
	case function == operators.Equals && LiteralText(right) != "":
		return left.AsIdent(), []string{LiteralText(right)}
	case function == operators.In && right.Kind() == celast.ListKind:
		for _, item := range right.AsList().Elements() {
			if LiteralText(item) == "" {
				return "", nil
			}
			values = append(values, LiteralText(item))
		}
		return left.AsIdent(), values
	}
	return "", nil
}

// LiteralText is a literal text, "" for any other expression.
func LiteralText(e celast.Expr) string {
	if e.Kind() == celast.LiteralKind {
		if s, ok := e.AsLiteral().(types.String); ok {
			return string(s)
		}
	}
	return ""
}

// Call returns the function and the arguments of a call, "" for any other expression.
func Call(e celast.Expr) (function string, args []celast.Expr) {
	if e.Kind() != celast.CallKind {
		return "", nil
	}
	return e.AsCall().FunctionName(), e.AsCall().Args()
}

// Children returns the operands of an expression, those of comprehensions included.
func Children(e celast.Expr) []celast.Expr {
	switch e.Kind() {
	case celast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			return append([]celast.Expr{c.Target()}, c.Args()...)
		}
		return c.Args()
	case celast.SelectKind:
		return []celast.Expr{e.AsSelect().Operand()}
	case celast.ListKind:
		return e.AsList().Elements()
	case celast.MapKind:
		var list []celast.Expr
		for _, entry := range e.AsMap().Entries() {
			list = append(list, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return list
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		return []celast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()}
	}
	return nil
}

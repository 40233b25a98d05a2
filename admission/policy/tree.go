package policy

import (
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// conjuncts are the parts of a condition all of which must hold.
func conjuncts(e celast.Expr) []celast.Expr {
	function, args := callOf(e)
	if function != operators.LogicalAnd {
		return []celast.Expr{e}
	}
	var list []celast.Expr
	for _, a := range args {
		list = append(list, conjuncts(a)...)
	}
	return list
}

// requiredValues reads "variable == text" and "variable in [texts]".
func requiredValues(e celast.Expr) (variable string, values []string) {
	function, args := callOf(e)
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
	case function == operators.Equals && literalText(right) != "":
		return left.AsIdent(), []string{literalText(right)}
	case function == operators.In && right.Kind() == celast.ListKind:
		for _, item := range right.AsList().Elements() {
			if literalText(item) == "" {
				return "", nil
			}
			values = append(values, literalText(item))
		}
		return left.AsIdent(), values
	}
	return "", nil
}

func literalText(e celast.Expr) string {
	if e.Kind() == celast.LiteralKind {
		if s, ok := e.AsLiteral().(types.String); ok {
			return string(s)
		}
	}
	return ""
}

func callOf(e celast.Expr) (function string, args []celast.Expr) {
	if e.Kind() != celast.CallKind {
		return "", nil
	}
	return e.AsCall().FunctionName(), e.AsCall().Args()
}

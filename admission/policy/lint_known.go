package policy

import (
	"fmt"
	"reflect"
	"slices"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/countersign-dev/countersign/admission/policy/functions"
	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
	"github.com/countersign-dev/countersign/admission/policy/internal/expr"
	"github.com/countersign-dev/countersign/events"
)

// partialResults are the results of functions with lists that lack what is not known, each with its function.
var partialResults = map[string]string{
	reflect.TypeOf(shell.Script{}).String():    "shell.parse",
	reflect.TypeOf(functions.SQL{}).String():   "sql.statements",
	reflect.TypeOf(functions.Patch{}).String(): "diff.files",
}

// checkKnown warns of rules that allow by such a result where neither they nor a stricter rule of the policy asks
// whether it is known.
func (p *lintedPolicy) checkKnown() {
	stricter := newResultReads()
	for i, r := range p.Rules {
		if r.Verdict != events.Allow {
			p.walkResults(p.when[i], p.when[i].root(), mustBeFalse, stricter)
		}
	}
	for i, r := range p.Rules {
		if r.Verdict != events.Allow {
			continue
		}
		reads := newResultReads()
		p.walkResults(p.when[i], p.when[i].root(), mustBeTrue, reads)
		for result, function := range reads.functions {
			if !reads.asked[result] && !stricter.asked[result] {
				p.warn(r.whenLine, p.Name+"/"+r.Name, LintMissingKnown, "the rule allows by what "+function+" tells, and does not ask whether that is known")
			}
		}
	}
}

// resultReads are the results that conditions read, each by the expression that makes it.
type resultReads struct {
	functions map[string]string // the function of each
	asked     map[string]bool   // those of which known is asked
	variables map[string]bool   // variables that were looked at
}

func newResultReads() *resultReads {
	return &resultReads{map[string]string{}, map[string]bool{}, map[string]bool{}}
}

// truth is the value that an expression has where the policy allows.
type truth int

const (
	mustBeFalse truth = iota - 1 // the condition of a stricter rule
	mayBeBoth
	mustBeTrue // the condition of the rule that allows
)

// walkResults collects the results that an expression reads, those in variables included, and of which of them it
// asks that they be known.
func (p *lintedPolicy) walkResults(in expression, e celast.Expr, value truth, reads *resultReads) {
	if function := in.resultFunction(e); function != "" {
		reads.functions[p.resultText(in, e)] = function
	}
	inner := mayBeBoth
	switch function, _ := expr.Call(e); {
	case function == operators.LogicalNot:
		inner = -value
	case function == operators.LogicalAnd, function == operators.LogicalOr, e.Kind() == celast.ComprehensionKind:
		inner = value
	case e.Kind() == celast.SelectKind:
		if s := e.AsSelect(); s.FieldName() == "known" && in.resultFunction(s.Operand()) != "" && value != mustBeFalse {
			reads.asked[p.resultText(in, s.Operand())] = true
		}
	case e.Kind() == celast.IdentKind:
		if visit := fmt.Sprint(e.AsIdent(), value); !reads.variables[visit] {
			reads.variables[visit] = true
			if v, is := p.variableExpression(e); is {
				p.walkResults(v, v.root(), value, reads)
			}
		}
	}
	for _, c := range expr.Children(e) {
		p.walkResults(in, c, inner, reads)
	}
}

// variableExpression returns the checked expression of the variable that e names.
func (p *lintedPolicy) variableExpression(e celast.Expr) (v expression, is bool) {
	if e.Kind() != celast.IdentKind {
		return v, false
	}
	i := slices.IndexFunc(p.Variables, func(v variableSpec) bool { return variablesPrefix+v.Name == e.AsIdent() })
	if i < 0 {
		return v, false
	}
	return p.exprs[i], true // the first expressions are those of the variables
}

// resultText is the text of the expression that makes a result, behind all variables. An expression with a loop has no
// text; it is not told from others of its function.
func (p *lintedPolicy) resultText(in expression, e celast.Expr) string {
	if v, is := p.variableExpression(e); is {
		return p.resultText(v, v.root())
	}
	text, err := cel.ExprToString(e, in.ast.NativeRep().SourceInfo())
	if err != nil {
		return in.resultFunction(e)
	}
	return text
}

// resultFunction is the function whose result an expression is, "" for any other expression.
func (in expression) resultFunction(e celast.Expr) string {
	if t := in.ast.NativeRep().GetType(e.ID()); t != nil {
		return partialResults[t.TypeName()]
	}
	return ""
}

package policy

import (
	"fmt"
	"maps"
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

// partialResults are the results of functions that lack what is not known, or guess it, each with its function.
var partialResults = map[string]string{
	reflect.TypeOf(shell.Script{}).String():      "shell.parse",
	reflect.TypeOf(functions.View{}).String():    "cli.view",
	reflect.TypeOf(functions.Address{}).String(): "url.parse",
	reflect.TypeOf(functions.SQL{}).String():     "sql.statements",
	reflect.TypeOf(functions.Patch{}).String():   "diff.files",
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
			if !reads.asks(result, function) && !stricter.asks(result, function) {
				p.warn(r.whenLine, p.Name+"/"+r.Name, LintMissingKnown, "the rule allows by what "+function+" tells, and does not ask whether that is known")
			}
		}
	}
}

// resultReads are the results that conditions read, each by the expression that makes it.
type resultReads struct {
	functions map[string]string       // the function of each
	asked     map[string]bool         // those of which known is asked
	variables map[string]*resultReads // what the variables read that were looked at
}

func newResultReads() *resultReads {
	return &resultReads{map[string]string{}, map[string]bool{}, map[string]*resultReads{}}
}

// asks reports whether known is asked of a result, or of one in a loop of which only the function is known.
func (r *resultReads) asks(result, function string) bool { return r.asked[result] || r.asked[function] }

// part returns the reads of a part of what r is of.
func (r *resultReads) part() *resultReads {
	return &resultReads{map[string]string{}, map[string]bool{}, r.variables}
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
	case function == operators.LogicalOr && value == mustBeTrue:
		p.walkAlternatives(in, e, reads)
		return
	case function == operators.LogicalNot:
		inner = -value
	case function == operators.LogicalAnd, function == operators.LogicalOr, e.Kind() == celast.ComprehensionKind:
		inner = value
	case e.Kind() == celast.SelectKind:
		if s := e.AsSelect(); s.FieldName() == "known" && in.resultFunction(s.Operand()) != "" && value != mustBeFalse {
			reads.asked[p.resultText(in, s.Operand())] = true
		}
	case e.Kind() == celast.IdentKind:
		if v, is := p.variableExpression(e); is {
			visit := fmt.Sprint(e.AsIdent(), value)
			if reads.variables[visit] == nil {
				reads.variables[visit] = reads.part()
				p.walkResults(v, v.root(), value, reads.variables[visit])
			}
			maps.Copy(reads.functions, reads.variables[visit].functions)
			maps.Copy(reads.asked, reads.variables[visit].asked)
		}
	}
	for _, c := range expr.Children(e) {
		p.walkResults(in, c, inner, reads)
	}
}

// walkAlternatives collects the results that an || reads, where one part must be true: what a part reads, it has to ask
// for itself.
func (p *lintedPolicy) walkAlternatives(in expression, or celast.Expr, reads *resultReads) {
	asked, unasked := map[string]bool{}, map[string]string{}
	for _, e := range expr.Children(or) {
		part := reads.part()
		p.walkResults(in, e, mustBeTrue, part)
		maps.Copy(asked, part.asked)
		maps.DeleteFunc(part.functions, func(result, function string) bool { return part.asks(result, function) })
		maps.Copy(unasked, part.functions)
	}
	maps.DeleteFunc(asked, func(result string, _ bool) bool { return unasked[result] != "" })
	maps.Copy(reads.asked, asked)
	maps.Copy(reads.functions, unasked)
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

// resultText is the text of the expression that makes a result, behind all variables. An expression with a loop, and an
// element of a list in one, has no text; it is not told from others of its function.
func (p *lintedPolicy) resultText(in expression, e celast.Expr) string {
	if v, is := p.variableExpression(e); is {
		return p.resultText(v, v.root())
	}
	text, err := cel.ExprToString(e, in.ast.NativeRep().SourceInfo())
	if err != nil || e.Kind() == celast.IdentKind {
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

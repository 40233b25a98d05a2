package policy

import (
	"reflect"

	celast "cel.dev/cel-go/common/ast"

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
	asked := map[string]bool{}
	for i, r := range p.Rules {
		if r.Verdict != events.Allow {
			p.walkResults(p.when[i], p.when[i].root(), map[string]bool{}, asked)
		}
	}
	for i, r := range p.Rules {
		if r.Verdict != events.Allow {
			continue
		}
		read, askedHere := map[string]bool{}, map[string]bool{}
		p.walkResults(p.when[i], p.when[i].root(), read, askedHere)
		for result, function := range partialResults {
			if read[result] && !asked[result] && !askedHere[result] {
				p.warn(r.whenLine, p.Name+"/"+r.Name, LintMissingKnown, "the rule allows by what "+function+" tells, and does not ask whether that is known")
			}
		}
	}
}

// walkResults collects the results, and the variables, that an expression reads, and of which results it reads known.
func (p *lintedPolicy) walkResults(in expression, e celast.Expr, read, asked map[string]bool) {
	if t := in.ast.NativeRep().GetType(e.ID()); t != nil && partialResults[t.TypeName()] != "" {
		read[t.TypeName()] = true
	}
	if e.Kind() == celast.SelectKind && e.AsSelect().FieldName() == "known" {
		if t := in.ast.NativeRep().GetType(e.AsSelect().Operand().ID()); t != nil {
			asked[t.TypeName()] = true
		}
	}
	if e.Kind() == celast.IdentKind {
		for i, v := range p.Variables { // the first expressions are those of the variables
			if name := e.AsIdent(); variablesPrefix+v.Name == name && !read[name] {
				read[name] = true
				p.walkResults(p.exprs[i], p.exprs[i].root(), read, asked)
			}
		}
	}
	for _, c := range expr.Children(e) {
		p.walkResults(in, c, read, asked)
	}
}

package shell

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// variables are the variables of all texts: which of them are given numbers, which are given other
// texts, and which ones arithmetic reads. It checks what the texts do with variables.
type variables struct {
	*failures
	numeric, textual, counted map[string]bool
}

func newVariables(f *failures) *variables {
	return &variables{failures: f, numeric: map[string]bool{}, textual: map[string]bool{}, counted: map[string]bool{}}
}

// dangerousVariables change which programs run, or what they do.
var dangerousVariables = strings.Fields("PATH BASH_ENV ENV IFS SHELL SHELLOPTS BASHOPTS PROMPT_COMMAND PS4 PAGER MANPAGER EDITOR VISUAL BROWSER LESSOPEN LESSCLOSE " +
	"PYTHONSTARTUP PYTHONPATH PYTHONHOME PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS CDPATH GLOBIGNORE HOME PWD OLDPWD " +
	"CC CXX LD MAKEFLAGS GOFLAGS RUSTC_WRAPPER RUSTFLAGS TAR_OPTIONS EXECIGNORE FIGNORE RIPGREP_CONFIG_PATH GOPROXY GOPATH GOROOT GOBIN GOENV GOTOOLCHAIN KUBECONFIG LESS MORE GREP_OPTIONS LS_OPTIONS " +
	"FPATH MODULE_PATH NULLCMD READNULLCMD FUNCTIONS COMMANDS ALIASES GALIASES SALIASES OPTIONS") // of zsh

// dangerousPrefixes are of such variables, too.
var dangerousPrefixes = []string{"LD_", "DYLD_", "GIT_", "BASH_", "XDG_", "CARGO_", "DOCKER_", "KUBE_", "AWS_", "NPM_CONFIG_", "PIP_", "SSH_", "CURL_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_", "AWK", "DIS_"}

// harmlessVariables are variables of which a program only learns how to print, or for what it runs. Of
// another variable that a program is given, it is not known what the program does with it.
var harmlessVariables = strings.Fields("CI DEBUG VERBOSE NODE_ENV RAILS_ENV RACK_ENV APP_ENV FLASK_ENV DJANGO_SETTINGS_MODULE ENVIRONMENT LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE " +
	"COLUMNS LINES LOG_LEVEL RUST_BACKTRACE RUST_LOG CGO_ENABLED GOOS GOARCH GO111MODULE PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED PORT HOST DISPLAY TEST_MODE SOURCE_DATE_EPOCH DEBIAN_FRONTEND")

// checkAssignment checks an assignment; exported says that a program is given the variable.
func (v *variables) checkAssignment(a *syntax.Assign, exported bool) {
	if a.Name == nil || a.Naked {
		return
	}
	v.checkName(a.Name.Value)
	if exported {
		v.checkExported(a.Name.Value)
	}
}

// checkName fails for a variable that changes which programs run, or what they do.
func (v *variables) checkName(name string) {
	name = strings.ToUpper(name)
	if slices.Contains(harmlessVariables, name) {
		return
	}
	if hasUnknown(name) || slices.Contains(dangerousVariables, name) || slices.ContainsFunc(dangerousPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
		v.fail(ReasonEnv)
	}
}

// checkExported fails for a variable that a program is given and that is not known to be harmless.
func (v *variables) checkExported(name string) {
	name, _ = splitVariable(name)
	if len(name) == 1 && isName(name) {
		return // no program is known that reads a variable of one letter
	}
	if !slices.Contains(harmlessVariables, name) && !strings.HasPrefix(name, "LC_") {
		v.fail(ReasonEnv)
	}
}

// checkVariable checks a variable to which a command, or an expansion, gives any text. The name may have
// a subscript or a value behind it.
func (v *variables) checkVariable(word string) {
	name, subscript := splitVariable(word)
	v.textual[name] = true
	v.checkName(name)
	if subscript != "" && !isName(subscript) && !number.MatchString(subscript) {
		v.fail(ReasonHidden)
	}
}

// splitVariable is the name and the subscript of name[subscript]=value.
func splitVariable(word string) (name, subscript string) {
	end := strings.IndexAny(word, "=+[")
	if end < 0 {
		return word, ""
	}
	if word[end] == '[' {
		subscript, _, _ = strings.Cut(word[end+1:], "]")
		if subscript == "" {
			subscript = "?"
		}
	}
	return word[:end], subscript
}

// evaluators are the shell's own commands that evaluate subscripts, and with them substitutions, in
// their arguments.
var evaluators = strings.Fields("let test [ declare typeset local export readonly printf unset read wait mapfile readarray getopts shift return exit")

// counting are the evaluators that take a number.
var counting = strings.Fields("shift return exit")

// declaring are the evaluators that are a declaration.
var declaring = strings.Fields("declare typeset local export readonly")

// checkEvaluator checks a command that gives values to variables, or evaluates its arguments.
func (v *variables) checkEvaluator(name string, words []string) {
	args := words[1:]
	switch {
	case name == "mapfile", name == "readarray":
		v.fail(ReasonDefined)
	case name == "let":
		v.fail(ReasonHidden)
	case name == "printf":
		v.checkNumbers(args)
		args = v.printfVariable(args)
	case slices.Contains(declaring, name):
		for _, w := range args {
			v.checkDeclaration(name, w)
		}
		args = nil
	}
	for _, w := range args {
		if !slices.Contains(counting, name) {
			v.checkVariable(w)
		}
		if strings.Contains(w, "$(") || strings.Contains(w, "`") {
			v.fail(ReasonHidden)
		}
	}
}

// subscript is the beginning of a subscript with a substitution in it.
var subscript = regexp.MustCompile("[A-Za-z_][A-Za-z0-9_]*\\[[^]]*([$][(]|`)")

// checkNumbers fails for an argument of printf that zsh evaluates where the format has a number.
func (v *variables) checkNumbers(args []string) {
	if len(args) > 1 && strings.Contains(args[0], "%") && slices.ContainsFunc(args[1:], subscript.MatchString) {
		v.fail(ReasonHidden)
	}
}

// printfVariable is the argument of printf -v, alone or joined to the option.
func (v *variables) printfVariable(args []string) []string {
	switch {
	case len(args) == 0:
	case strings.HasPrefix(args[0], Unknown):
		v.fail(ReasonEnv)
	case args[0] == "-v":
		return args[1:min(2, len(args))]
	case strings.HasPrefix(args[0], "-v"):
		return []string{args[0][2:]}
	}
	return nil
}

// checkDeclaration checks an argument of declare and its like that is no plain assignment. An option that
// makes a variable evaluate what it is given, or another name for one, is not understood.
func (v *variables) checkDeclaration(variant, text string) {
	switch {
	case variant == "nameref", strings.HasPrefix(text, "-") && strings.Trim(text[1:], "xrpgaAf") != "":
		v.fail(ReasonHidden)
	case !strings.HasPrefix(text, "-"):
		v.checkVariable(text)
		v.checkExported(text)
	}
}

// checkEvaluation checks what a shell evaluates once more: an arithmetic expression runs the
// substitutions in the subscripts that a variable holds.
func (v *variables) checkEvaluation(n syntax.Node) {
	switch x := n.(type) {
	case *syntax.ArithmExp:
		v.checkArithmetic(x.X)
	case *syntax.ArithmCmd:
		v.checkArithmetic(x.X)
	case *syntax.LetClause:
		for _, e := range x.Exprs {
			v.checkArithmetic(e)
		}
	case *syntax.CStyleLoop:
		for _, e := range []syntax.ArithmExpr{x.Init, x.Cond, x.Post} {
			v.checkArithmetic(e)
		}
	case *syntax.BinaryTest:
		if x.Op >= syntax.TsEql && x.Op <= syntax.TsGtr {
			v.checkNumber(x.X)
			v.checkNumber(x.Y)
		}
	case *syntax.UnaryTest:
		if w, ok := x.X.(*syntax.Word); (x.Op == syntax.TsVarSet || x.Op == syntax.TsRefVar) && (!ok || !isName(w.Lit())) {
			v.fail(ReasonHidden)
		}
	case *syntax.ParamExp:
		v.checkParameter(x)
	case *syntax.ForClause:
		v.checkLoop(x)
	case *syntax.Assign:
		v.noteAssign(x)
	case *syntax.ArrayElem:
		v.checkIndex(x.Index)
	case *syntax.FuncDecl:
		if x.Name != nil && shadows(x.Name.Value) {
			v.fail(ReasonDefined)
		}
	}
}

func (v *variables) checkParameter(x *syntax.ParamExp) {
	if x.Excl || x.Flags != nil || x.Width || x.IsSet || x.NestedParam != nil || len(x.Modifiers) > 0 || x.Exp != nil && x.Exp.Op == syntax.OtherParamOps {
		v.fail(ReasonHidden) // ${!x} and ${x@P} run what a variable holds
		return
	}
	v.checkIndex(x.Index)
	if x.Slice != nil {
		v.checkArithmetic(x.Slice.Offset)
		v.checkArithmetic(x.Slice.Length)
	}
	if x.Exp != nil && (x.Exp.Op == syntax.AssignUnset || x.Exp.Op == syntax.AssignUnsetOrNull) && x.Param != nil {
		v.checkVariable(x.Param.Value)
	}
}

func (v *variables) checkIndex(x syntax.ArithmExpr) {
	if w, ok := x.(*syntax.Word); ok && (w.Lit() == "@" || w.Lit() == "*") {
		return
	}
	v.checkArithmetic(x)
}

func (v *variables) checkLoop(x *syntax.ForClause) {
	w, ok := x.Loop.(*syntax.WordIter)
	if !ok || w.Name == nil {
		return
	}
	if x.Select || len(w.Items) == 0 || slices.ContainsFunc(w.Items, func(w *syntax.Word) bool { return !isNumber(w) && !numberRange.MatchString(w.Lit()) }) {
		v.checkVariable(w.Name.Value)
		return
	}
	v.checkNumeric(w.Name.Value)
}

var numberRange = regexp.MustCompile(`^\{[0-9]+\.\.[0-9]+(\.\.[0-9]+)?\}$`)

// noteAssign records whether a variable always holds a number.
func (v *variables) noteAssign(a *syntax.Assign) {
	v.checkIndex(a.Index)
	if a.Name == nil || a.Naked {
		return
	}
	number := a.Value == nil && a.Array == nil || a.Value != nil && isNumber(a.Value)
	if a.Array != nil {
		number = !slices.ContainsFunc(a.Array.Elems, func(e *syntax.ArrayElem) bool { return e.Value == nil || !isNumber(e.Value) })
	}
	if number {
		v.numeric[a.Name.Value] = true
	} else {
		v.textual[a.Name.Value] = true
	}
}

// checkNumeric is checkVariable for a variable that is given a number.
func (v *variables) checkNumeric(name string) {
	was := v.textual[name]
	v.checkVariable(name)
	if v.numeric[name] = true; !was {
		delete(v.textual, name)
	}
}

// checkArithmetic checks an arithmetic expression. Numbers, operators and variables that hold nothing but
// numbers are understood.
func (v *variables) checkArithmetic(x syntax.ArithmExpr) {
	switch x := x.(type) {
	case nil:
	case *syntax.BinaryArithm:
		if w, ok := x.X.(*syntax.Word); ok && x.Op == syntax.Assgn && isName(w.Lit()) {
			v.checkNumeric(w.Lit())
		} else {
			v.checkArithmetic(x.X)
		}
		v.checkArithmetic(x.Y)
	case *syntax.UnaryArithm:
		v.checkArithmetic(x.X)
	case *syntax.ParenArithm:
		v.checkArithmetic(x.X)
	case *syntax.Word:
		v.checkNumber(x)
	default:
		v.fail(ReasonHidden)
	}
}

func (v *variables) checkNumber(x any) {
	w, ok := x.(*syntax.Word)
	if !ok {
		v.fail(ReasonHidden)
		return
	}
	if name, is := variableOf(w); is {
		v.counted[name] = true
	} else if !isNumber(w) {
		v.fail(ReasonHidden)
	}
}

// checkCounted fails for a variable in an arithmetic expression that may hold something else than a
// number. It runs last: a later text may assign to the variable.
func (v *variables) checkCounted() {
	for name := range v.counted {
		if !v.numeric[name] || v.textual[name] {
			v.fail(ReasonHidden)
		}
	}
}

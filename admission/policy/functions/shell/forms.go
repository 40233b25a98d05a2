package shell

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxTreeDepth bounds the depth of the tree of a text. The count of brackets before the parser can be
// misled by brackets in quotes; the tree cannot.
const maxTreeDepth = 2048

// checkForms looks at every node of a text once. A form that is not named here makes the script unknown,
// and so does one that a shell of another kind reads differently.
func (p *parser) checkForms(file *syntax.File, posix bool) {
	depth, expansion := 0, 0 // expansion is the depth of the outermost ${...} around a node
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			if depth--; depth < expansion {
				expansion = 0
			}
			return true
		}
		if p.step(); depth >= maxTreeDepth || p.isTooLarge() {
			p.fail(ReasonTooLarge)
			return false
		}
		depth++
		if !understood(n) || posix && !portable(n) {
			p.fail(ReasonSyntax)
		}
		if _, is := n.(*syntax.ParamExp); is && expansion == 0 {
			expansion = depth
		} else if expansion > 0 && !plainQuotes(n) {
			p.fail(ReasonHidden)
		}
		p.variables.checkEvaluation(n)
		return true
	})
}

// plainQuotes reports whether quotes in ${x:-...} hold nothing that is read otherwise without them: in
// double quotes and in a here-document, a single quote there is a character like any other.
func plainQuotes(n syntax.Node) bool {
	switch x := n.(type) {
	case *syntax.SglQuoted:
		return !strings.ContainsAny(x.Value, "$`\"'\\}{\n")
	case *syntax.DblQuoted:
		return !slices.ContainsFunc(x.Parts, func(part syntax.WordPart) bool {
			l, literal := part.(*syntax.Lit)
			return literal && strings.ContainsAny(l.Value, "}'\n")
		})
	}
	return true
}

// understood reports whether a form has the same meaning in Bash and to the rest of this package.
func understood(n syntax.Node) bool {
	switch x := n.(type) {
	case *syntax.Stmt:
		return !x.Coprocess && !x.Disown
	case *syntax.CmdSubst:
		return !x.TempFile && !x.ReplyVar
	case *syntax.FuncDecl:
		return x.Name != nil && len(x.Names) == 0
	case *syntax.ForClause:
		return !x.Braces
	case *syntax.CaseClause:
		return !x.Braces
	case *syntax.Redirect:
		return x.N == nil || strings.Trim(x.N.Value, "0123456789") == ""
	case *syntax.File, *syntax.CallExpr, *syntax.BinaryCmd, *syntax.Subshell, *syntax.Block, *syntax.IfClause, *syntax.WhileClause, *syntax.CaseItem, *syntax.WordIter, *syntax.CStyleLoop,
		*syntax.Comment, *syntax.TimeClause, *syntax.DeclClause, *syntax.LetClause, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted, *syntax.Assign, *syntax.ArrayExpr, *syntax.ArrayElem,
		*syntax.ProcSubst, *syntax.ParamExp, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.BinaryArithm, *syntax.UnaryArithm, *syntax.ParenArithm, *syntax.TestClause, *syntax.BinaryTest,
		*syntax.UnaryTest, *syntax.ParenTest:
		return true
	}
	return false
}

// portableRedirections are the redirections that every shell of the Bourne family knows.
var portableRedirections = []syntax.RedirOperator{syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.DplOut, syntax.RdrClob, syntax.Hdoc, syntax.DashHdoc}

// portable reports whether sh reads a form as Bash does: sh may be dash, to which [[ is a program.
func portable(n syntax.Node) bool {
	switch x := n.(type) {
	case *syntax.ForClause:
		return !x.Select
	case *syntax.FuncDecl:
		return !x.RsrvWord
	case *syntax.CaseItem:
		return x.Op == syntax.Break
	case *syntax.BinaryCmd:
		return x.Op != syntax.PipeAll
	case *syntax.Redirect:
		return slices.Contains(portableRedirections, x.Op)
	case *syntax.SglQuoted:
		return !x.Dollar
	case *syntax.DblQuoted:
		return !x.Dollar
	case *syntax.Assign:
		return !x.Append && x.Index == nil && x.Array == nil
	case *syntax.ArithmExp:
		return !x.Bracket
	case *syntax.ParamExp:
		return x.Index == nil && x.Slice == nil && x.Repl == nil && (x.Exp == nil || !slices.Contains([]syntax.ParExpOperator{syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll}, x.Exp.Op))
	case *syntax.DeclClause:
		return slices.Contains([]string{"export", "readonly", "local"}, x.Variant.Value) && !slices.ContainsFunc(x.Args, func(a *syntax.Assign) bool { return a.Value != nil && maySplit(a.Value.Parts, false) })
	case *syntax.Word:
		split := *x
		split.Parts = slices.Clone(x.Parts)
		return !syntax.SplitBraces(&split)
	case *syntax.ProcSubst, *syntax.CStyleLoop, *syntax.LetClause, *syntax.ArithmCmd, *syntax.TestClause, *syntax.ArrayExpr, *syntax.ExtGlob:
		return false
	}
	return true
}

// shadows reports whether a function of this name would take the place of something that this package
// understands.
func shadows(name string) bool {
	_, file := roles[name]
	return file || openers[name] != nil || wrappers[name] != nil || strings.Contains(name, "/") || slices.Contains(movers, name) || slices.Contains(evaluators, name) || slices.Contains(redefining, name)
}

// onlyPart is the one part of a word, without double quotes around it.
func onlyPart(w *syntax.Word) syntax.WordPart {
	if len(w.Parts) != 1 {
		return nil
	}
	if q, ok := w.Parts[0].(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		return q.Parts[0]
	}
	return w.Parts[0]
}

// variableOf is the variable that a word of an arithmetic expression reads, as x, $x, ${x} or x[1].
func variableOf(w *syntax.Word) (string, bool) {
	switch x := onlyPart(w).(type) {
	case *syntax.Lit:
		return x.Value, isName(x.Value)
	case *syntax.ParamExp:
		if x.Param != nil && isName(x.Param.Value) && !x.Length && x.Slice == nil && x.Repl == nil && x.Exp == nil {
			return x.Param.Value, true
		}
	}
	return "", false
}

var number = regexp.MustCompile(`^[+-]?[0-9]+$`)

// isNumber reports whether a word is a number, whatever variables hold.
func isNumber(w *syntax.Word) bool {
	switch x := onlyPart(w).(type) {
	case *syntax.Lit:
		return number.MatchString(x.Value)
	case *syntax.ArithmExp:
		return true
	case *syntax.ParamExp:
		return numericParameter(x)
	}
	return false
}

// numericParameter reports whether a parameter is a length, or one that the shell sets to a number.
func numericParameter(x *syntax.ParamExp) bool {
	return x.Length || x.Param != nil && slices.Contains([]string{"#", "?", "$", "!"}, x.Param.Value) && x.Exp == nil && x.Slice == nil && x.Repl == nil
}

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isName(s string) bool { return name.MatchString(s) }

// maySplit reports whether the parts of a word may become any number of words: by a variable or a
// substitution without quotes, a list of arguments, or a pattern.
func maySplit(parts []syntax.WordPart, quoted bool) bool {
	for _, part := range parts {
		switch x := part.(type) {
		case *syntax.DblQuoted:
			if maySplit(x.Parts, true) {
				return true
			}
		case *syntax.CmdSubst:
			if !quoted {
				return true
			}
		case *syntax.ParamExp:
			w, _ := x.Index.(*syntax.Word)
			list := x.Param != nil && x.Param.Value == "@" || w != nil && w.Lit() == "@"
			if list && !x.Length || !quoted && !numericParameter(x) {
				return true
			}
		}
	}
	return !quoted && pattern.MatchString(maskOf(parts))
}

var pattern = regexp.MustCompile(`[*?]|\[.*\]`)

// plainContinuations reports whether every line that continues on the next one does so beside a blank, and
// holds no comment. Elsewhere shells put together what the parser reads apart: $ and ( on two lines are a
// substitution. A comment ends with its line for a shell, and the next line runs; not so for the parser.
func plainContinuations(text string) bool {
	for i := 1; i < len(text); i++ {
		if text[i] != '\n' || text[i-1] != '\\' {
			continue
		}
		if mayComment(text[strings.LastIndexByte(text[:i], '\n')+1 : i]) {
			return false
		}
		from := i - 1
		for from > 0 && text[from-1] == '\\' {
			from--
		}
		if (i-from)%2 == 0 {
			continue // the backslash is escaped
		}
		before, after := byte(' '), byte(' ')
		if i > 1 {
			before = text[i-2]
		}
		if i+1 < len(text) {
			after = text[i+1]
		}
		if !isBlank(before) && !isBlank(after) {
			return false
		}
	}
	return true
}

// mayComment reports whether a # may begin a comment in a line: it does where a word begins.
func mayComment(line string) bool {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || !insideWord(line[i-1])) {
			return true
		}
	}
	return false
}

func insideWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_$\"'/.:=-", c) >= 0
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// Package shell tells which programs a shell text would start. Parse reads the text with a
// maintained parser of Bash and opens what starts other programs: sh -c, eval, env, xargs, find
// -exec, sudo and the like (the tables are in wrappers.go). It is pure and bounded: it runs
// nothing, reads no file, and expands no variable.
//
// What the text alone cannot tell is unknown. Script.Known is false if it is not known which
// programs start. An unknown part of a word is the character U+0000, which no real word can hold.
package shell

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Bounds. A text beyond one of them is not known.
const (
	MaxText         = 32 << 10    // bytes of a text
	maxParsed       = 3 * MaxText // bytes of all texts within a text together
	maxDepth        = 8           // texts within texts, such as sh -c in sh -c
	maxNesting      = 200         // open brackets, compound commands and functions
	maxBrackets     = 2048        // opening brackets of one text
	maxSteps        = 4 * maxParsed
	maxChain        = 256 // | and && of one text
	maxRedirections = 32  // of one command
	maxCommands     = 512
	maxWords        = 4096 // of all commands together
	maxBytes        = 1 << 20
	maxDirs         = 4 // directories in which one command may run
)

// Unknown stands for a part of a word that only a run of the shell can tell.
const Unknown = "\x00"

// UnknownOption stands for options that a variable or a pattern at the beginning of a word may become:
// * may match a file with a dash at the beginning of its name.
const UnknownOption = "-" + Unknown

// Script is everything that a text starts.
type Script struct {
	Known    bool      `cel:"known"`   // every program that starts is listed
	Reasons  []string  `cel:"reasons"` // why known is false, sorted
	Commands []Command `cel:"commands"`

	Words  []string `cel:"words"`  // of all commands, each once
	Reads  []string `cel:"reads"`  // likewise
	Writes []string `cel:"writes"` // likewise
}

// summarise fills the lists of all commands.
func (s *Script) summarise() {
	s.Words, s.Reads, s.Writes = []string{}, []string{}, []string{}
	seen := map[[2]string]bool{}
	add := func(kind string, into *[]string, list []string) {
		for _, v := range list {
			if key := [2]string{kind, v}; !seen[key] {
				seen[key] = true
				*into = append(*into, v)
			}
		}
	}
	for i := range s.Commands {
		c := &s.Commands[i]
		add("words", &s.Words, c.Words)
		add("reads", &s.Reads, c.Reads)
		add("writes", &s.Writes, c.Writes)
	}
}

// Command is one program that starts, or a command that the shell runs itself.
type Command struct {
	// The program in lower case. A program in a directory of the system has its base
	// name; another path stays, without resolving .., and a relative one begins with ./. Empty: unknown, or assignments alone.
	Name         string            `cel:"name"`
	Words        []string          `cel:"words"`        // the program and its arguments, without quotes; the * of a pattern stays
	Known        bool              `cel:"known"`        // no word, target or directory has an unknown part
	Options      []string          `cel:"options"`      // arguments that begin with -, without =value; of -rf also -r and -f; "-\x00" if a variable or a pattern such as * may become one: of grep and rg, only before --
	Operands     []string          `cel:"operands"`     // the other arguments
	Assignments  map[string]string `cel:"assignments"`  // NAME=value before the program
	Redirections []Redirection     `cel:"redirections"` // of the command and of all that surrounds it
	Piped        bool              `cel:"piped"`        // its input is another command's output
	Pipes        bool              `cel:"pipes"`        // its output is another command's input
	Via          []string          `cel:"via"`          // what starts it: sudo, sh, xargs, substitution, from the outside in
	Dirs         []string          `cel:"dirs"`         // directories in which it may run; "" is the one in which the text starts
	Reads        []string          `cel:"reads"`        // files that it reads, as far as its redirections and, of the programs [listed here](#objects), its arguments tell; the * of a pattern stays
	Writes       []string          `cel:"writes"`       // files that it writes, creates or deletes, likewise; "\x00" among them is one that is not named
	Code         bool              `cel:"code"`         // it runs code that is not opened: of another language, or of a file
}

// Redirection is one of a command's files.
type Redirection struct {
	Operator string `cel:"operator"` // as written: >, >>, <, <<, …
	Target   string `cel:"target"`   // the file; empty for << and <<<, of which no member has the text
	Write    bool   `cel:"write"`    // it writes the file
}

// Reasons why a script is not known.
const (
	ReasonSyntax   = "syntax"         // the text cannot be parsed, or shells read a form in it differently
	ReasonTooLarge = "too_large"      // it exceeds a bound
	ReasonProgram  = "program"        // a variable, a substitution or a pattern names the program
	ReasonInput    = "input"          // a shell runs what another program writes, or a file
	ReasonCode     = "code"           // a shell or eval runs a text with an unknown part
	ReasonOptions  = "options"        // an option of a program that starts others is not known
	ReasonEnv      = "environment"    // an assignment changes what programs do
	ReasonDefined  = "redefinition"   // alias, enable, hash or the like
	ReasonHidden   = "hidden_command" // arithmetic, or a shell's own command, evaluates a text that may hold a substitution
)

// Parse reads a text.
func Parse(text string) Script {
	p := newParser()
	p.parseText(text, context{dirs: []string{""}})
	p.variables.checkCounted()
	s := Script{Known: len(p.reasons) == 0, Reasons: []string{}, Commands: p.list.commands}
	for r := range p.reasons {
		s.Reasons = append(s.Reasons, r)
	}
	slices.Sort(s.Reasons)
	if s.Commands == nil {
		s.Commands = []Command{}
	}
	s.summarise()
	return s
}

// parser walks the texts. What it finds is kept by its parts: the reasons why the script is not known,
// the commands and the variables.
type parser struct {
	*failures
	list      commandList
	variables *variables

	depth  int
	parsed int // bytes of texts that the parser was given
	steps  int // visits of nodes
	moves  int // commands that may have changed the directory
}

func newParser() *parser {
	f := &failures{map[string]bool{}}
	return &parser{failures: f, list: commandList{failures: f}, variables: newVariables(f)}
}

// failures are the reasons why a script is not known.
type failures struct{ reasons map[string]bool }

func (f *failures) fail(reason string) { f.reasons[reason] = true }

// isTooLarge reports whether a bound is exceeded: what is left of the script is not read.
func (f *failures) isTooLarge() bool { return f.reasons[ReasonTooLarge] }

// context is what surrounds a command. It is passed by value.
type context struct {
	dirs         []string
	via          []string
	redirections []Redirection
	reads        []string
	writes       []string
	piped, pipes bool
	unknown      bool    // a redirection has an unknown target
	input        *string // the literal input of a here-document that one command reads; nil: another
	redirected   bool    // a redirection gives the input
	posix        bool    // the shell may be another than Bash
	single       int     // how many of a command's first words are certainly one word each
	behind       int     // how many of its first words there are to the last that may be several; 0: none may
}

func (c context) within(via string) context {
	c.via = append(slices.Clip(c.via), via)
	return c
}

// step counts one visit of a node.
func (p *parser) step() {
	if p.steps++; p.steps > maxSteps {
		p.fail(ReasonTooLarge)
	}
}

// parseText lists what a text starts, and returns the directories after it.
func (p *parser) parseText(text string, c context) []string {
	p.parsed += len(text)
	if len(text) > MaxText || p.parsed > maxParsed || p.depth >= maxDepth || nestingOf(text) > maxNesting || strings.Count(text, "|")+strings.Count(text, "&&") > maxChain {
		p.fail(ReasonTooLarge)
		return c.dirs
	}
	backslashes := len(text) - len(strings.TrimRight(text, "\\")) // the last one stays or not
	if backslashes%2 == 1 || strings.ContainsAny(text, "\x00\r") || strings.Contains(text, "\ufffd") || !plainContinuations(text) {
		p.fail(ReasonSyntax) // shells differ on what these do
		return c.dirs
	}
	file, err := parseBash(text)
	if err != nil || c.posix && !parsesAsPOSIX(text) {
		p.fail(ReasonSyntax)
		return c.dirs
	}
	p.depth++
	defer func() { p.depth-- }()
	p.checkForms(file, c.posix)
	c.input, c.redirected = nil, false
	return p.walkStmts(file.Stmts, c)
}

func parseBash(text string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

func parsesAsPOSIX(text string) bool {
	_, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(text), "")
	return err == nil
}

// nestingOf is about the depth of a text's syntax tree, before it is parsed: the open brackets, and the
// words and declarations that open something without one. Brackets in quotes can mislead it; the depth
// of the tree is bounded as well.
func nestingOf(text string) int {
	open, deepest, brackets, words := 0, 0, 0, strings.Count(text, "((")
	for i := range len(text) {
		if text[i] == '(' && strings.HasPrefix(strings.TrimLeft(text[i+1:min(i+64, len(text))], " \t\\\n"), ")") {
			words++ // a function
		}
	}
	for i := range len(text) {
		switch text[i] {
		case '(', '{', '[':
			open, brackets = open+1, brackets+1
		case ')', '}', ']':
			open = max(open-1, 0)
		case '`':
			words++
		}
		deepest = max(deepest, open)
	}
	for _, w := range strings.FieldsFunc(text, isSeparator) {
		switch w {
		case "if", "while", "until", "for", "case", "select", "!", "time", "coproc", "function", "elif":
			words++
		}
	}
	if brackets > maxBrackets {
		return brackets
	}
	return max(deepest, words)
}

func isSeparator(r rune) bool { return strings.ContainsRune(" \t\n;&|(){}'\"`", r) }

func (p *parser) walkStmts(list []*syntax.Stmt, c context) []string {
	for _, s := range list {
		if p.isTooLarge() {
			return c.dirs
		}
		c.dirs = p.walkStmt(s, c)
	}
	return c.dirs
}

// union joins two sets of directories.
func union(a, b []string) []string {
	out := slices.Clip(a)
	for _, d := range b {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	if len(out) > maxDirs {
		return []string{Unknown}
	}
	return out
}

// walkStmt lists the commands of a statement and returns the directories after it.
func (p *parser) walkStmt(s *syntax.Stmt, c context) []string {
	before := c.dirs
	if p.isTooLarge() {
		return before
	}
	for _, r := range s.Redirs {
		c = p.redirect(r, c)
	}
	if s.Cmd == nil {
		if len(s.Redirs) > 0 {
			p.list.add(Command{}, c)
		}
		return before
	}
	after := p.walkCommand(s.Cmd, c)
	if s.Background || s.Coprocess || s.Disown {
		return before
	}
	return after
}

func (p *parser) walkCommand(cmd syntax.Command, c context) []string {
	if _, one := cmd.(*syntax.CallExpr); !one {
		c.input = nil // the first command that reads may take a part of it
	}
	switch x := cmd.(type) {
	case *syntax.CallExpr:
		return p.walkCall(x, c)
	case *syntax.BinaryCmd:
		return p.walkBinary(x, c)
	case *syntax.Subshell:
		p.walkSubshell(x.Stmts, c)
	case *syntax.Block:
		return p.walkStmts(x.Stmts, c)
	case *syntax.TimeClause:
		if x.Stmt != nil {
			return p.walkStmt(x.Stmt, c)
		}
	case *syntax.FuncDecl:
		// The body is listed where it is defined; a call of it has the function's name.
		inner := c.within("function")
		inner.dirs = []string{Unknown}
		before := p.moves
		p.walkStmt(x.Body, inner)
		if p.moves != before {
			return []string{Unknown}
		}
	case *syntax.DeclClause:
		p.walkDecl(x, c)
	default:
		return p.walkCompound(cmd, c)
	}
	return c.dirs
}

func (p *parser) walkBinary(x *syntax.BinaryCmd, c context) []string {
	left, right := c, c
	if x.Op == syntax.Pipe || x.Op == syntax.PipeAll {
		left.pipes, right.piped = true, true
		right.input = nil
		p.walkStmt(x.X, left)
		before := p.moves
		if p.walkStmt(x.Y, right); p.moves != before {
			return []string{Unknown} // zsh, and Bash with lastpipe, run the end of a pipe themselves
		}
		return c.dirs
	}
	if x.Op == syntax.AndStmt {
		return p.walkAnd(x, c)
	}
	right.dirs = p.walkStmt(x.X, left)
	return union(right.dirs, p.walkStmt(x.Y, right))
}

// walkAnd lists the commands of a chain of &&. Each runs only after the ones before it have succeeded.
func (p *parser) walkAnd(x *syntax.BinaryCmd, c context) []string {
	chain := []*syntax.Stmt{x.Y}
	first := x.X
	for {
		b, ok := first.Cmd.(*syntax.BinaryCmd)
		if !ok || b.Op != syntax.AndStmt || len(first.Redirs) > 0 || first.Negated || first.Background {
			break
		}
		chain, first = append(chain, b.Y), b.X
	}
	chain = append(chain, first)
	slices.Reverse(chain)
	possible := c.dirs
	for _, s := range chain {
		before := c.dirs
		after := p.walkStmt(s, c)
		possible = union(possible, after)
		if c.dirs = after; !hasUnknown(strings.Join(before, "")) {
			c.dirs = successDirs(s, before, after)
		}
	}
	return possible
}

// walkCompound lists the commands of loops and branches. Each part may run or not, in any order.
func (p *parser) walkCompound(cmd syntax.Command, c context) []string {
	var stmts [][]*syntax.Stmt
	switch x := cmd.(type) {
	case *syntax.IfClause:
		for i := x; i != nil; i = i.Else {
			stmts = append(stmts, i.Cond, i.Then)
		}
	case *syntax.WhileClause:
		stmts = append(stmts, x.Cond, x.Do)
	case *syntax.ForClause:
		p.walkExpansions(x.Loop, c)
		stmts = append(stmts, x.Do)
	case *syntax.CaseClause:
		p.walkExpansions(x.Word, c)
		for _, item := range x.Items {
			for _, w := range item.Patterns {
				p.walkExpansions(w, c)
			}
			stmts = append(stmts, item.Stmts)
		}
	default: // [[ ]], (( )), let
		p.walkExpansions(cmd, c)
		p.list.add(Command{Name: "test", Words: []string{"test"}}, c)
		return c.dirs
	}
	first, before := p.list.count(), p.moves
	for _, list := range stmts {
		p.walkStmts(list, c)
	}
	if p.moves == before {
		return c.dirs
	}
	p.list.unsettle(first)
	return []string{Unknown}
}

// movers are the shell's own commands that change the directory.
var movers = []string{"cd", "pushd", "popd", "chdir"}

// walkExpansions lists the commands in substitutions below a node.
func (p *parser) walkExpansions(n syntax.Node, c context) {
	if n == nil {
		return
	}
	inner := c.within("substitution")
	inner.pipes, inner.piped, inner.input = true, false, nil
	syntax.Walk(n, func(n syntax.Node) bool {
		p.step()
		switch x := n.(type) {
		case *syntax.CmdSubst:
			p.walkSubshell(x.Stmts, inner)
			return false
		case *syntax.ProcSubst:
			p.walkSubshell(x.Stmts, inner)
			return false
		case *syntax.Lit:
			if strings.ContainsRune(x.Value, '`') {
				p.fail(ReasonHidden)
			}
		}
		return true
	})
}

// walkSubshell lists statements that change the directory of nothing else.
func (p *parser) walkSubshell(list []*syntax.Stmt, c context) {
	before := p.moves
	p.walkStmts(list, c)
	p.moves = before
}

func (p *parser) walkDecl(x *syntax.DeclClause, c context) {
	exported := x.Variant.Value == "export"
	for _, a := range x.Args {
		p.walkExpansions(a, c)
		if a.Name != nil {
			p.variables.checkAssignment(a, exported)
			continue
		}
		text, _ := partsText(a.Value.Parts, plain)
		p.variables.checkDeclaration(x.Variant.Value, text)
		exported = exported || strings.HasPrefix(text, "-") && strings.Contains(text, "x")
	}
	p.list.add(Command{Name: x.Variant.Value, Words: []string{x.Variant.Value}}, c)
}

// redirect adds a redirection to a context.
func (p *parser) redirect(r *syntax.Redirect, c context) context {
	if len(c.redirections) >= maxRedirections {
		p.fail(ReasonTooLarge)
		return c
	}
	c.redirections, c.reads, c.writes = slices.Clip(c.redirections), slices.Clip(c.reads), slices.Clip(c.writes)
	p.walkExpansions(r.Word, c)
	if r.Hdoc != nil {
		if !quotedDelimiter(r.Word) {
			p.walkExpansions(r.Hdoc, c)
		}
		text := hereText(r)
		c.redirections = append(c.redirections, Redirection{Operator: r.Op.String()})
		return c.withInput(r, &text)
	}
	if strings.HasPrefix(maskOf(r.Word.Parts), "!") {
		p.fail(ReasonSyntax) // of >! f, zsh writes f
	}
	words, known := expandWord(r.Word)
	target := Unknown
	if len(words) == 1 {
		target = words[0]
	}
	switch r.Op {
	case syntax.WordHdoc:
		if text, _ := partsText(r.Word.Parts, plain); text != target {
			target = Unknown // braces are not expanded here
		}
		text := target + "\n"
		c.redirections = append(c.redirections, Redirection{Operator: r.Op.String()})
		return c.withInput(r, &text)
	case syntax.DplIn, syntax.DplOut:
		if known && descriptor.MatchString(target) {
			return c.withInput(r, nil) // 2>&1
		}
	}
	write := r.Op != syntax.RdrIn && r.Op != syntax.DplIn
	c.redirections = append(c.redirections, Redirection{Operator: r.Op.String(), Target: target, Write: write})
	c.unknown = c.unknown || !known
	if write {
		c.writes = append(c.writes, inDirs(c.dirs, target)...)
	}
	if !write || r.Op == syntax.RdrInOut {
		c.reads = append(c.reads, inDirs(c.dirs, target)...)
	}
	return c.withInput(r, nil)
}

// descriptor is what >& and <& take for an open file, one that is moved, or none.
var descriptor = regexp.MustCompile(`^[0-9]*-?$`)

// readingRedirections are the redirections that give the standard input if they name no descriptor.
var readingRedirections = []syntax.RedirOperator{syntax.RdrIn, syntax.RdrInOut, syntax.DplIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc}

// withInput gives a context the input of a redirection, if it is one of the standard input.
func (c context) withInput(r *syntax.Redirect, text *string) context {
	if r.N == nil && slices.Contains(readingRedirections, r.Op) || r.N != nil && strings.Trim(r.N.Value, "0") == "" {
		c.input, c.redirected = text, true
	}
	return c
}

// Size is about how many bytes the script holds.
func (s Script) Size() (n int64) {
	for i := range s.Commands {
		n += 2 * int64(s.Commands[i].size()) // the lists of all commands hold no more again
	}
	return n + 64
}

func hasUnknown(s string) bool { return strings.Contains(s, Unknown) }

package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// systemDirs are directories of which a program has its base name.
var systemDirs = []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"}

// ProgramName is the name of a program as Command.Name has it.
func ProgramName(word string) string {
	name := strings.ToLower(word)
	if strings.Contains(name, "/") {
		switch cleaned := path.Clean(name); {
		case slices.Contains(systemDirs, path.Dir(cleaned)) && leavesSystemDirs(name):
			name = path.Base(cleaned)
		case strings.Contains(name, "/.."): // it stays: a link may lead to another place than the text
			if !path.IsAbs(name) {
				name = "./" + strings.TrimPrefix(name, "./")
			}
		case path.IsAbs(name):
			name = cleaned
		default:
			name = "./" + cleaned
		}
	}
	return strings.TrimSuffix(name, ".exe")
}

// leavesSystemDirs reports whether each .. of a path leads out of a directory of the system: elsewhere a link may
// lead to another place than the text. A long path is not looked at.
func leavesSystemDirs(name string) bool {
	if len(name) > 256 {
		return false
	}
	for at := 0; ; at++ {
		next := strings.Index(name[at:], "/..")
		if next < 0 {
			return true
		}
		at += next
		dir := path.Clean(name[:at])
		if !slices.ContainsFunc(systemDirs, func(d string) bool { return d == dir || path.Dir(d) == dir }) {
			return false
		}
	}
}

func (p *parser) walkCall(x *syntax.CallExpr, c context) []string {
	if len(x.Args) > maxWords || len(x.Assigns) > maxWords {
		p.fail(ReasonTooLarge)
		return c.dirs
	}
	assigned := map[string]string{}
	for _, a := range x.Assigns {
		p.walkExpansions(a, c)
		p.variables.checkAssignment(a, len(x.Args) > 0)
		if a.Name != nil && a.Value != nil {
			text, _ := partsText(a.Value.Parts, plain)
			assigned[a.Name.Value] = text
		}
	}
	var words []string
	c.single, c.behind = -1, 0
	for _, w := range x.Args {
		p.walkExpansions(w, c)
		list, _ := expandWord(w)
		braces := len(list) == 1 && list[0] == Unknown && strings.Contains(maskOf(w.Parts), "{")
		several := braces || maySplit(w.Parts, false)
		if c.single < 0 && several {
			c.single = len(words)
		}
		if words = append(words, list...); several {
			c.behind = len(words)
		}
	}
	if c.single < 0 {
		c.single = len(words)
	}
	if len(words) == 0 {
		if len(x.Assigns) > 0 || len(c.redirections) > 0 {
			p.list.add(Command{Assignments: assigned}, c)
		}
		return c.dirs
	}
	return p.run(words, assigned, c)
}

// run lists a command of which the words are known as far as they can be, and what it starts.
func (p *parser) run(words []string, assigned map[string]string, c context) []string {
	if len(words) == 0 {
		return c.dirs
	}
	name := ProgramName(words[0])
	if hasUnknown(words[0]) || strings.ContainsAny(words[0], "*~") || words[0] == "" || words[0][0] == '-' || words[0][0] == '=' {
		p.fail(ReasonProgram)
		name = ""
	}
	p.list.add(Command{Name: name, Words: words, Assignments: assigned}, c)
	if len(c.via) > 2*maxDepth {
		p.fail(ReasonTooLarge)
		return c.dirs
	}
	p.checkBuiltin(name, words, c)
	switch open := openers[name]; {
	case slices.Contains(movers, name):
		p.moves++
		if name == "popd" {
			return []string{Unknown}
		}
		return union(c.dirs, cdTargets(words, c.dirs))
	case open != nil:
		return open(p, words, c)
	case wrappers[name] != nil:
		return p.runWrapped(name, wrappers[name], words, c)
	}
	return c.dirs
}

// redefining are commands that change what a name means.
var redefining = strings.Fields("alias enable hash bind complete compgen compopt shopt set unalias fc history")

// harmlessSets are the arguments with which set and shopt change nothing here.
var harmlessSets = []string{"-e", "-u", "-x", "-o", "-eu", "-ex", "-eux", "-euo", "-exo", "-euxo", "pipefail", "errexit", "nounset", "xtrace", "+e", "+x", "+u", "--", "-eo", "-xe", "-ue"}

// setOptions are the values of the option -o of a shell.
var setOptions = []string{"pipefail", "errexit", "nounset", "xtrace", "noglob", "noclobber"}

// checkBuiltin checks the arguments of a command that a shell runs itself.
func (p *parser) checkBuiltin(name string, words []string, c context) {
	switch {
	case name == "exec" && c.redirected:
		p.fail(ReasonInput) // a shell that reads its text from its input goes on with another
	case name == "jobs" && len(words) > 1:
		p.fail(ReasonOptions)
	case name == "test", name == "[":
		p.checkTest(words, c)
	case slices.Contains(evaluators, name):
		p.variables.checkEvaluator(name, words)
	case slices.Contains(redefining, name):
		if name == "set" && !slices.ContainsFunc(words[1:], func(w string) bool { return !slices.Contains(harmlessSets, w) }) || name == "history" && len(words) == 1 || name == "alias" && len(words) == 1 {
			return
		}
		p.fail(ReasonDefined)
	}
}

// testOperators are the operators of test with two operands, and what ends an operand.
var testOperators = strings.Fields("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o ] )")

// checkTest checks test: its operator -v evaluates the subscript of its operand, so every operator must be
// known.
func (p *parser) checkTest(words []string, c context) {
	if c.single < len(words) {
		p.fail(ReasonOptions)
	}
	for i, w := range words[1:] {
		if i+2 >= len(words) {
			return
		}
		next := words[i+2]
		if (w == "-v" || w == "-R") && !isName(next) && !slices.Contains(testOperators, next) {
			p.fail(ReasonHidden)
		}
		if strings.HasPrefix(w, Unknown) && !slices.Contains(testOperators, next) {
			p.fail(ReasonOptions)
		}
	}
}

// runText lists what a shell runs that is given a text, and returns the directories after it.
func (p *parser) runText(text string, c context) []string {
	if hasUnknown(text) {
		p.fail(ReasonCode)
		return c.dirs
	}
	return p.parseText(text, c)
}

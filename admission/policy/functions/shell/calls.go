package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// systemDirs are directories of which a program has its base name.
var systemDirs = []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"}

// programName is the name of a program as Command.Name has it.
func programName(word string) string {
	name := strings.ToLower(word)
	if strings.Contains(name, "/") {
		name = path.Clean(name)
		if slices.Contains(systemDirs, path.Dir(name)) {
			name = path.Base(name)
		} else if !path.IsAbs(name) {
			name = "./" + name
		}
	}
	return strings.TrimSuffix(name, ".exe")
}

// dangerousVariables change which programs run, or what they do.
var dangerousVariables = strings.Fields("PATH BASH_ENV ENV IFS SHELL SHELLOPTS BASHOPTS PROMPT_COMMAND PS4 PAGER MANPAGER EDITOR VISUAL BROWSER LESSOPEN LESSCLOSE " +
	"PYTHONSTARTUP PYTHONPATH PYTHONHOME PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS CDPATH GLOBIGNORE HOME PWD OLDPWD " +
	"CC CXX LD MAKEFLAGS GOFLAGS RUSTC_WRAPPER RUSTFLAGS TAR_OPTIONS EXECIGNORE FIGNORE RIPGREP_CONFIG_PATH GOPROXY GOPATH GOROOT GOBIN GOENV GOTOOLCHAIN KUBECONFIG LESS MORE GREP_OPTIONS LS_OPTIONS")

// dangerousPrefixes are of such variables, too.
var dangerousPrefixes = []string{"LD_", "DYLD_", "GIT_", "BASH_", "XDG_", "CARGO_", "DOCKER_", "KUBE_", "AWS_", "NPM_CONFIG_", "PIP_", "SSH_", "CURL_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_", "AWK"}

// harmlessVariables are variables of which a program only learns how to print, or for what it runs. Of
// another variable that a program is given, it is not known what the program does with it.
var harmlessVariables = strings.Fields("CI DEBUG VERBOSE NODE_ENV RAILS_ENV RACK_ENV APP_ENV FLASK_ENV DJANGO_SETTINGS_MODULE ENVIRONMENT LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE " +
	"COLUMNS LINES LOG_LEVEL RUST_BACKTRACE RUST_LOG CGO_ENABLED GOOS GOARCH GO111MODULE PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED PORT HOST DISPLAY TEST_MODE SOURCE_DATE_EPOCH DEBIAN_FRONTEND")

func (p *parser) checkAssignment(a *syntax.Assign, exported bool) {
	if a.Name == nil || a.Naked {
		return
	}
	p.checkName(a.Name.Value)
	if exported {
		p.checkExported(a.Name.Value)
	}
}

// checkName fails for a variable that changes which programs run, or what they do.
func (p *parser) checkName(name string) {
	name = strings.ToUpper(name)
	if slices.Contains(harmlessVariables, name) {
		return
	}
	if hasUnknown(name) || slices.Contains(dangerousVariables, name) || slices.ContainsFunc(dangerousPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
		p.fail(ReasonEnv)
	}
}

// checkExported fails for a variable that a program is given and that is not known to be harmless.
func (p *parser) checkExported(name string) {
	name, _ = splitVariable(name)
	if !slices.Contains(harmlessVariables, name) && !strings.HasPrefix(name, "LC_") {
		p.fail(ReasonEnv)
	}
}

// checkVariable checks a variable to which a command, or an expansion, gives any text. The name may have
// a subscript or a value behind it.
func (p *parser) checkVariable(word string) {
	name, subscript := splitVariable(word)
	p.textual[name] = true
	p.checkName(name)
	if subscript != "" && !isName(subscript) && !number.MatchString(subscript) {
		p.fail(ReasonHidden)
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

func (p *parser) walkCall(x *syntax.CallExpr, c context) []string {
	if len(x.Args) > maxWords || len(x.Assigns) > maxWords {
		p.fail(ReasonTooLarge)
		return c.dirs
	}
	assigned := map[string]string{}
	for _, a := range x.Assigns {
		p.walkExpansions(a, c)
		p.checkAssignment(a, len(x.Args) > 0)
		if a.Name != nil && a.Value != nil {
			text, _ := partsText(a.Value.Parts, plain)
			assigned[a.Name.Value] = text
		}
	}
	var words []string
	c.single, c.behind = -1, 0
	for _, w := range x.Args {
		p.walkExpansions(w, c)
		several := maySplit(w.Parts, false)
		if c.single < 0 && several {
			c.single = len(words)
		}
		list, _ := p.expandWord(w)
		if words = append(words, list...); several {
			c.behind = len(words)
		}
	}
	if c.single < 0 {
		c.single = len(words)
	}
	if len(words) == 0 {
		if len(x.Assigns) > 0 || len(c.redirections) > 0 {
			p.add(Command{Assignments: assigned}, c)
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
	name := programName(words[0])
	if hasUnknown(words[0]) || strings.ContainsAny(words[0], "*~") || words[0] == "" || words[0][0] == '-' || words[0][0] == '=' {
		p.fail(ReasonProgram)
		name = ""
	}
	p.add(Command{Name: name, Words: words, Assignments: assigned}, c)
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

// evaluators are the shell's own commands that evaluate subscripts, and with them substitutions, in
// their arguments.
var evaluators = strings.Fields("let test [ declare typeset local export readonly printf unset read wait mapfile readarray getopts shift return exit")

// counting are the evaluators that take a number.
var counting = strings.Fields("shift return exit")

// declaring are the evaluators that are a declaration.
var declaring = strings.Fields("declare typeset local export readonly")

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
		p.checkEvaluator(name, words)
	case slices.Contains(redefining, name):
		if name == "set" && !slices.ContainsFunc(words[1:], func(w string) bool { return !slices.Contains(harmlessSets, w) }) || name == "history" && len(words) == 1 || name == "alias" && len(words) == 1 {
			return
		}
		p.fail(ReasonDefined)
	}
}

// checkEvaluator checks a command that gives values to variables, or evaluates its arguments.
func (p *parser) checkEvaluator(name string, words []string) {
	args := words[1:]
	switch {
	case name == "mapfile", name == "readarray":
		p.fail(ReasonDefined)
	case name == "let":
		p.fail(ReasonHidden)
	case name == "printf":
		args = p.printfVariable(args)
	case slices.Contains(declaring, name):
		for _, w := range args {
			p.checkDeclaration(name, w)
		}
		args = nil
	}
	for _, w := range args {
		if !slices.Contains(counting, name) {
			p.checkVariable(w)
		}
		if strings.Contains(w, "$(") || strings.Contains(w, "`") {
			p.fail(ReasonHidden)
		}
	}
}

// printfVariable is the argument of printf -v, alone or joined to the option.
func (p *parser) printfVariable(args []string) []string {
	switch {
	case len(args) == 0:
	case strings.HasPrefix(args[0], Unknown):
		p.fail(ReasonEnv)
	case args[0] == "-v":
		return args[1:min(2, len(args))]
	case strings.HasPrefix(args[0], "-v"):
		return []string{args[0][2:]}
	}
	return nil
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

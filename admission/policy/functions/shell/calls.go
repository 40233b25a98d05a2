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
	"CC CXX LD MAKEFLAGS GOFLAGS RUSTC_WRAPPER RUSTFLAGS TAR_OPTIONS EXECIGNORE FIGNORE RIPGREP_CONFIG_PATH")

// dangerousPrefixes are of such variables, too.
var dangerousPrefixes = []string{"LD_", "DYLD_", "GIT_", "BASH_FUNC_", "NPM_CONFIG_", "PIP_", "SSH_", "CURL_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_", "AWK"}

func (p *parser) checkAssignment(a *syntax.Assign) {
	if a.Name == nil {
		return
	}
	name := strings.ToUpper(a.Name.Value)
	if a.Naked {
		return
	}
	if slices.Contains(dangerousVariables, name) || slices.ContainsFunc(dangerousPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
		p.fail(ReasonEnv)
	}
}

func (p *parser) walkCall(x *syntax.CallExpr, c context) []string {
	assigned := map[string]string{}
	for _, a := range x.Assigns {
		p.walkExpansions(a, c)
		p.checkAssignment(a)
		if a.Name != nil && a.Value != nil {
			text, _ := partsText(a.Value.Parts, false)
			assigned[a.Name.Value] = text
		}
	}
	var words []string
	for _, w := range x.Args {
		p.walkExpansions(w, c)
		list, _ := p.expandWord(w)
		words = append(words, list...)
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
	if hasUnknown(words[0]) || strings.ContainsAny(words[0], "*~") || words[0] == "" {
		p.fail(ReasonProgram)
		name = ""
	}
	p.add(Command{Name: name, Words: words, Assignments: assigned}, c)
	if len(c.via) > 2*maxDepth {
		p.fail(ReasonTooLarge)
		return c.dirs
	}
	switch open := openers[name]; {
	case name == "cd", name == "pushd", name == "popd":
		if name == "popd" {
			return []string{Unknown}
		}
		return union(c.dirs, cdTargets(words, c.dirs))
	case open != nil:
		open(p, words, c)
	case wrappers[name] != nil:
		p.runWrapped(name, wrappers[name], words, c)
	}
	p.checkBuiltin(name, words)
	if name == "" || slices.Contains(inProcess, name) && (name == "source" || name == "." || slices.ContainsFunc(words[1:], mentionsMove)) {
		return []string{Unknown}
	}
	return c.dirs
}

// inProcess are commands that run others in the shell itself, which may change its directory.
var inProcess = []string{"eval", "command", "builtin", "trap", "source", "."}

// evaluators are the shell's own commands that evaluate subscripts, and with them substitutions, in
// their arguments.
var evaluators = strings.Fields("let test [ declare typeset local export readonly printf unset read wait mapfile readarray getopts shift return exit")

// redefining are commands that change what a name means.
var redefining = strings.Fields("alias enable hash bind complete compopt shopt set unalias fc history")

// harmlessSets are the arguments with which set and shopt change nothing here.
var harmlessSets = []string{"-e", "-u", "-x", "-o", "-eu", "-ex", "-eux", "-euo", "-exo", "-euxo", "pipefail", "errexit", "nounset", "xtrace", "+e", "+x", "+u", "--", "-eo", "-xe", "-ue"}

func (p *parser) checkBuiltin(name string, words []string) {
	switch {
	case slices.Contains(evaluators, name):
		for _, w := range words[1:] {
			if strings.Contains(w, "$(") || strings.Contains(w, "`") || strings.Contains(w, "[") && name != "test" && name != "[" && hasUnknown(w) {
				p.fail(ReasonHidden)
			}
		}
		if name != "test" && name != "[" && (name != "printf" || slices.Contains(words, "-v")) {
			for _, w := range words[1:] {
				p.checkVariable(w)
			}
		}
		if name == "mapfile" || name == "readarray" {
			p.fail(ReasonDefined)
		}
	case slices.Contains(redefining, name):
		if name == "set" && !slices.ContainsFunc(words[1:], func(w string) bool { return !slices.Contains(harmlessSets, w) }) || name == "history" && len(words) == 1 || name == "alias" && len(words) == 1 {
			return
		}
		p.fail(ReasonDefined)
	}
}

// runText lists what a shell runs that is given a text.
func (p *parser) runText(text string, c context) {
	if hasUnknown(text) {
		p.fail(ReasonCode)
		return
	}
	p.parseText(text, c)
}

package shell

import (
	"slices"
	"strings"
)

// wrapper is a program that starts the program in its arguments.
type wrapper struct {
	flags    string   // short options without an argument
	takes    string   // short options with one
	long     []string // long options without an argument
	longTake []string // long options with one, which = may join to it
	skip     int      // operands before the program
	assigns  bool     // NAME=value before the program
	appends  bool     // unknown arguments follow
	numbers  bool     // -5 is an option
}

// wrappers are the programs that start the program in their arguments. An option that is not listed
// makes the script unknown.
var wrappers = map[string]*wrapper{
	"sudo": {flags: "AbBEHKkNnPSvlisV", takes: "CDghpRrTtUu", long: []string{"--preserve-env", "--login", "--shell", "--non-interactive", "--stdin", "--background", "--set-home"},
		longTake: []string{"--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--role", "--type", "--other-user"}, assigns: true},
	"doas":       {flags: "Lns", takes: "aCu"},
	"env":        {flags: "i0v", takes: "uC", long: []string{"--ignore-environment", "--null", "--debug"}, longTake: []string{"--unset", "--chdir"}, assigns: true},
	"nohup":      {},
	"setsid":     {flags: "cfw", long: []string{"--ctty", "--fork", "--wait"}},
	"nice":       {takes: "n", longTake: []string{"--adjustment"}, numbers: true},
	"ionice":     {flags: "t", takes: "cn", longTake: []string{"--class", "--classdata"}},
	"timeout":    {flags: "v", takes: "ks", long: []string{"--foreground", "--preserve-status", "--verbose"}, longTake: []string{"--kill-after", "--signal"}, skip: 1},
	"stdbuf":     {takes: "ioe", longTake: []string{"--input", "--output", "--error"}},
	"time":       {flags: "pvaq", takes: "fo", long: []string{"--portability", "--verbose", "--append", "--quiet"}, longTake: []string{"--format", "--output"}},
	"command":    {flags: "pvV"},
	"builtin":    {},
	"exec":       {flags: "cl", takes: "a"},
	"chroot":     {longTake: []string{"--userspec", "--groups"}, skip: 1},
	"taskset":    {flags: "a", takes: "", skip: 1},
	"chrt":       {flags: "abfior", skip: 1},
	"strace":     {flags: "fFqvxyc", takes: "eopsaPE"},
	"busybox":    {},
	"toybox":     {},
	"unbuffer":   {},
	"caffeinate": {flags: "dimsu", takes: "tw"},
	"flock":      {flags: "senuox", takes: "wE", skip: 1},
	"xargs": {flags: "0rtxpo", takes: "adEILnPsi", long: []string{"--null", "--no-run-if-empty", "--verbose", "--exit", "--interactive", "--open-tty"},
		longTake: []string{"--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-lines", "--max-chars", "--replace", "--eof"}, appends: true},
}

// openers list what programs start that need more than a table.
var openers map[string]func(p *parser, words []string, c context)

// The openers refer to the table through the parser, so an initialiser would be a cycle.
func init() {
	openers = map[string]func(p *parser, words []string, c context){
		"sh": openShell, "bash": openShell, "dash": openShell, "zsh": openShell, "ksh": openShell, "ash": openShell, "mksh": openShell, "rbash": openShell,
		"fish": openUnknown, "csh": openUnknown, "tcsh": openUnknown, "pwsh": openUnknown, "powershell": openUnknown, "cmd": openUnknown, "parallel": openUnknown,
		"su": openUnknown, "runuser": openUnknown, "script": openUnknown, "expect": openUnknown, "at": openUnknown, "batch": openUnknown, "crontab": openUnknown, "unshare": openUnknown,
		"nsenter": openUnknown, "pkexec": openUnknown, "systemd-run": openUnknown, "gdb": openUnknown, "nu": openUnknown, "osascript": openUnknown, "xonsh": openUnknown, "entr": openUnknown,
		"eval": openEval, "trap": openTrap, "find": openFind, "watch": openWatch, "source": openSource, ".": openSource, "xargs": openXargs, "env": openEnv,
	}
}

func openUnknown(p *parser, _ []string, _ context) { p.fail(ReasonCode) }

// arguments returns the words behind a wrapper's own options, and the arguments of its options.
func (w *wrapper) arguments(words []string) (rest []string, given map[string]string, ok bool) {
	given = map[string]string{}
	i := 1
	for ; i < len(words); i++ {
		o := words[i]
		if hasUnknown(o) {
			return nil, nil, false
		}
		if o == "--" {
			i++
			break
		}
		if o == "-" && w.assigns { // of env
			continue
		}
		if len(o) < 2 || o[0] != '-' {
			break
		}
		next, fine := w.option(words, i, given)
		if !fine {
			return nil, nil, false
		}
		i = next
	}
	return words[min(i, len(words)):], given, true
}

// option reads the option at i and returns the index of its last word.
func (w *wrapper) option(words []string, i int, given map[string]string) (int, bool) {
	o := words[i]
	if strings.HasPrefix(o, "--") {
		name, value, joined := strings.Cut(o, "=")
		switch {
		case slices.Contains(w.long, name):
			return i, true
		case !slices.Contains(w.longTake, name):
			return i, false
		case !joined && i+1 < len(words):
			given[name] = words[i+1]
			return i + 1, true
		}
		given[name] = value
		return i, joined
	}
	if w.numbers && strings.Trim(o[1:], "0123456789-+") == "" {
		return i, true
	}
	for j := 1; j < len(o); j++ {
		switch letter := o[j : j+1]; {
		case strings.Contains(w.flags, letter):
			given["-"+letter] = ""
		case !strings.Contains(w.takes, letter):
			return i, false
		case j+1 < len(o):
			given["-"+letter] = o[j+1:]
			return i, true
		case i+1 < len(words):
			given["-"+letter] = words[i+1]
			return i + 1, true
		default:
			return i, false
		}
	}
	return i, true
}

// runWrapped lists the program behind a wrapper.
func (p *parser) runWrapped(name string, w *wrapper, words []string, c context) {
	rest, given, ok := w.arguments(words)
	if !ok || len(rest) < w.skip {
		if len(words) > 1 && !slices.Contains([]string{"--help", "--version"}, words[1]) {
			p.fail(ReasonOptions)
		}
		return
	}
	assigned := map[string]string{}
	for rest = rest[w.skip:]; w.assigns && len(rest) > 0 && strings.Contains(rest[0], "="); rest = rest[1:] {
		variable, value, _ := strings.Cut(rest[0], "=")
		assigned[variable] = value
		p.checkVariable(variable)
	}
	for _, o := range []string{"-C", "-D", "--chdir", "-R", "--chroot"} {
		if d, moved := given[o]; moved && name != "flock" {
			c.dirs = union(nil, inDirs(c.dirs, d))
		}
	}
	if name == "chroot" {
		c.dirs = []string{Unknown}
	}
	if _, code := given["-c"]; name == "flock" && code || name == "doas" && given["-s"] != "" {
		p.fail(ReasonOptions)
	}
	if len(rest) == 0 {
		return
	}
	if _, only := given["-v"]; name == "command" && (only || hasKey(given, "-V")) {
		return
	}
	p.run(rest, assigned, c.within(name))
}

func hasKey(m map[string]string, key string) bool { _, ok := m[key]; return ok }

func (p *parser) checkVariable(name string) {
	name = strings.ToUpper(name)
	if hasUnknown(name) || slices.Contains(dangerousVariables, name) || slices.ContainsFunc(dangerousPrefixes, func(s string) bool { return strings.HasPrefix(name, s) }) {
		p.fail(ReasonEnv)
	}
}

// openEnv opens env; -S splits a text into words.
func openEnv(p *parser, words []string, c context) {
	for i := 1; i < len(words) && strings.HasPrefix(words[i], "-"); i++ {
		o := words[i]
		split, value := splitOption(o)
		if !split {
			continue
		}
		rest := words[i+1:]
		if value == "" && len(rest) > 0 {
			value, rest = rest[0], rest[1:]
		}
		if strings.ContainsAny(value, "\\$'\"#`;&|<>(){}*?[]~\n\x00") {
			p.fail(ReasonCode)
			return
		}
		openEnv(p, append(append([]string{"env"}, strings.Fields(value)...), rest...), c)
		return
	}
	p.runWrapped("env", wrappers["env"], words, c)
}

// splitOption reads env's option -S, also in a cluster or abbreviated.
func splitOption(o string) (bool, string) {
	if strings.HasPrefix(o, "--s") {
		_, value, _ := strings.Cut(o, "=")
		return true, value
	}
	if at := strings.IndexByte(o, 'S'); at > 0 && o[1] != '-' && strings.Trim(o[1:at], "iv0") == "" {
		return true, o[at+1:]
	}
	return false, ""
}

// openXargs opens xargs: unknown arguments follow, or replace a text.
func openXargs(p *parser, words []string, c context) {
	w := wrappers["xargs"]
	rest, given, ok := w.arguments(words)
	if !ok {
		p.fail(ReasonOptions)
		return
	}
	if len(rest) == 0 {
		return
	}
	inner := c.within("xargs")
	replaced := given["-I"]
	for _, o := range []string{"-i", "--replace"} {
		if v, is := given[o]; is {
			replaced = v
			if v == "" {
				replaced = "{}"
			}
		}
	}
	started := slices.Clone(rest)
	if replaced != "" {
		for i := range started {
			started[i] = strings.ReplaceAll(started[i], replaced, Unknown)
		}
	} else {
		started = append(started, Unknown)
	}
	inner.input, inner.piped = nil, true
	p.run(started, nil, inner)
}

// shellFlags are the short options of shells, and shellTakes those with an argument.
const shellFlags = "abefhiklmnprtuvxBCEHPTsc"

// openShell opens sh -c TEXT, and a text that is the shell's input.
func openShell(p *parser, words []string, c context) {
	if len(p.commands) == 0 {
		return // the bounds are exceeded
	}
	inner := c.within("sh")
	text, i := false, 1
	for ; i < len(words) && len(words[i]) > 1 && (words[i][0] == '-' || words[i][0] == '+'); i++ {
		o := words[i]
		switch {
		case o == "--":
			i++
		case slices.Contains([]string{"--norc", "--noprofile", "--login", "--posix", "--noediting", "--restricted", "--verbose"}, o):
			continue
		case o == "--version" || o == "--help":
			return
		case o[1] == '-' || strings.Trim(o[1:], shellFlags+"o") != "":
			p.fail(ReasonOptions)
			return
		default:
			text = text || o[0] == '-' && strings.Contains(o, "c")
			if strings.HasSuffix(o, "o") {
				i++
			}
			continue
		}
		break
	}
	rest := words[min(i, len(words)):]
	switch {
	case text && len(rest) == 0:
		p.fail(ReasonOptions)
	case text:
		inner.pipes = c.pipes
		p.runText(rest[0], inner)
	case len(rest) > 0 && !slices.Contains(words[:i], "-s"):
		if hasUnknown(rest[0]) || strings.HasPrefix(rest[0], "/dev/") || strings.HasPrefix(rest[0], "/proc/") {
			p.fail(ReasonInput)
		}
		p.commands[len(p.commands)-1].Code = true // of a file
	case c.input != nil:
		inner.input = nil
		p.runText(*c.input, inner)
	default:
		p.fail(ReasonInput)
	}
}

func openEval(p *parser, words []string, c context) {
	p.runText(strings.Join(words[1:], " "), c.within("eval"))
}

func openTrap(p *parser, words []string, c context) {
	if len(words) > 2 && words[1] != "-" && words[1] != "--" {
		p.runText(words[1], c.within("trap"))
	} else if len(words) > 2 && words[1] == "--" {
		p.runText(words[2], c.within("trap"))
	}
}

func openWatch(p *parser, words []string, c context) {
	rest, _, ok := (&wrapper{flags: "bcdegtx", takes: "n", longTake: []string{"--interval"}, long: []string{"--no-title", "--color", "--errexit", "--chgexit", "--differences"}}).arguments(words)
	if !ok {
		p.fail(ReasonOptions)
		return
	}
	p.runText(strings.Join(rest, " "), c.within("watch"))
}

func openSource(p *parser, words []string, _ context) {
	if len(words) < 2 || hasUnknown(words[1]) || strings.HasPrefix(words[1], "/dev/") || strings.HasPrefix(words[1], "/proc/") {
		p.fail(ReasonInput)
	}
}

// openFind opens -exec and its like.
func openFind(p *parser, words []string, c context) {
	for i := 1; i < len(words); i++ {
		if hasUnknown(words[i]) && i > 1 {
			p.checkFindUnknown(words[:i])
		}
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, words[i]) {
			continue
		}
		end := i + 1
		for end < len(words) && words[end] != ";" && !(words[end] == "+" && words[end-1] == "{}") {
			end++
		}
		started := slices.Clone(words[i+1 : end])
		for j := range started {
			started[j] = strings.ReplaceAll(started[j], "{}", Unknown)
		}
		inner := c.within("find")
		if strings.HasSuffix(words[i], "dir") {
			inner.dirs = []string{Unknown}
		}
		p.run(started, nil, inner)
		i = end
	}
}

// checkFindUnknown: an unknown word may be -exec, unless it is the argument of a test.
func (p *parser) checkFindUnknown(before []string) {
	last := before[len(before)-1]
	if !slices.Contains([]string{"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-newer", "-type", "-size", "-mtime", "-mmin", "-maxdepth", "-mindepth"}, last) {
		p.fail(ReasonProgram)
	}
}

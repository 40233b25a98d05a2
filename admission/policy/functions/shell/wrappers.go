package shell

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// wrapper is a program that starts the program in its arguments.
type wrapper struct {
	flags    string   // short options without an argument
	takes    string   // short options with one
	joined   string   // short options with one that only the same word can hold
	long     []string // long options without an argument, or with one behind =
	longTake []string // long options with one
	skip     int      // operands before the program
	assigns  bool     // NAME=value before the program
	numbers  bool     // -5 is an option
	shell    []string // options with which it starts a shell, besides the case that no program follows; ["*"]: only that case
}

// wrappers are the programs that start the program in their arguments. An option that is not listed
// makes the script unknown.
var wrappers = map[string]*wrapper{
	"sudo": {flags: "AbBEHKkNnPSvlisV", takes: "CDghpRrTtUu", long: []string{"--preserve-env", "--login", "--shell", "--non-interactive", "--stdin", "--background", "--set-home"},
		longTake: []string{"--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--role", "--type", "--other-user"}, assigns: true, shell: []string{"-s", "-i", "--shell", "--login"}},
	"doas":       {flags: "Lns", takes: "aCu", shell: []string{"-s"}},
	"env":        {flags: "i0v", takes: "uC", long: []string{"--ignore-environment", "--null", "--debug"}, longTake: []string{"--unset", "--chdir"}, assigns: true},
	"nohup":      {},
	"setsid":     {flags: "cfw", long: []string{"--ctty", "--fork", "--wait"}},
	"nice":       {takes: "n", longTake: []string{"--adjustment"}, numbers: true},
	"ionice":     {flags: "t", takes: "cn", longTake: []string{"--class", "--classdata"}},
	"timeout":    {flags: "v", takes: "ks", long: []string{"--foreground", "--preserve-status", "--verbose"}, longTake: []string{"--kill-after", "--signal"}, skip: 1},
	"stdbuf":     {takes: "ioe", longTake: []string{"--input", "--output", "--error"}},
	"time":       {flags: "pvaq", takes: "f", long: []string{"--portability", "--verbose", "--append", "--quiet"}, longTake: []string{"--format"}},
	"command":    {flags: "pvV"},
	"builtin":    {},
	"exec":       {flags: "cl", takes: "a"},
	"chroot":     {longTake: []string{"--userspec", "--groups"}, skip: 1, shell: []string{"*"}},
	"taskset":    {flags: "a", takes: "", skip: 1},
	"chrt":       {flags: "abfior", skip: 1},
	"strace":     {flags: "fFqvxyc", takes: "epsaP"},
	"busybox":    {},
	"toybox":     {},
	"unbuffer":   {},
	"caffeinate": {flags: "dimsu", takes: "tw"},
	"flock":      {flags: "senuox", takes: "wE", skip: 1},
	"xargs": {flags: "0rtxpo", takes: "adEILnPs", joined: "iel", long: []string{"--null", "--no-run-if-empty", "--verbose", "--exit", "--interactive", "--open-tty", "--replace", "--eof", "--max-lines"},
		longTake: []string{"--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars"}},
}

// openers list what programs start that need more than a table.
var openers map[string]func(p *parser, words []string, c context) []string

// The openers refer to the table through the parser, so an initialiser would be a cycle.
func init() {
	openers = map[string]func(p *parser, words []string, c context) []string{
		"sh": openShell, "bash": openShell, "dash": openShell, "ash": openShell, "rbash": openShell, "zsh": openUnknown, "ksh": openUnknown, "mksh": openUnknown, "noglob": openUnknown, "nocorrect": openUnknown, "repeat": openUnknown,
		"fish": openUnknown, "csh": openUnknown, "tcsh": openUnknown, "pwsh": openUnknown, "powershell": openUnknown, "cmd": openUnknown, "parallel": openUnknown,
		"su": openUnknown, "runuser": openUnknown, "script": openUnknown, "expect": openUnknown, "at": openUnknown, "batch": openUnknown, "crontab": openUnknown, "unshare": openUnknown,
		"nsenter": openUnknown, "pkexec": openUnknown, "systemd-run": openUnknown, "gdb": openUnknown, "nu": openUnknown, "osascript": openUnknown, "xonsh": openUnknown, "entr": openUnknown,
		"eval": openEval, "trap": openTrap, "find": openFind, "watch": openWatch, "source": openSource, ".": openSource, "xargs": openXargs, "env": openEnv,
	}
}

func openUnknown(p *parser, _ []string, c context) []string {
	p.fail(ReasonCode)
	return c.dirs
}

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
			given[name] = value
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
		case strings.Contains(w.joined, letter):
			given["-"+letter] = o[j+1:]
			return i, true
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

// runWrapped lists the program behind a wrapper, and returns the directories after it.
func (p *parser) runWrapped(name string, w *wrapper, words []string, c context) []string {
	rest, given, ok := w.arguments(words)
	if !ok || len(rest) < w.skip {
		if len(words) > 1 && !slices.Contains([]string{"--help", "--version"}, words[1]) {
			p.fail(ReasonOptions)
		}
		return c.dirs
	}
	assigned := map[string]string{}
	for rest = rest[w.skip:]; w.assigns && len(rest) > 0 && strings.Contains(rest[0], "="); rest = rest[1:] {
		variable, value, _ := strings.Cut(rest[0], "=")
		assigned[variable] = value
		p.variables.checkVariable(variable)
		p.variables.checkExported(variable)
	}
	if slices.ContainsFunc(w.shell, func(o string) bool { return hasKey(given, o) }) || len(rest) == 0 && slices.Contains(w.shell, "*") {
		p.fail(ReasonInput)
	}
	before := len(words) - len(rest)
	if before > c.single {
		p.fail(ReasonOptions) // a pattern or a variable among the options may be the program
	}
	if _, only := given["-v"]; len(rest) == 0 || name == "command" && (only || hasKey(given, "-V")) {
		return c.dirs
	}
	inner := c.within(name)
	inner.single, inner.behind = max(c.single-before, 0), max(c.behind-before, 0)
	inner.dirs = wrappedDirs(name, given, c.dirs)
	after := p.run(rest, assigned, inner)
	if name == "command" || name == "builtin" {
		return after
	}
	return c.dirs
}

// wrappedDirs are the directories in which the program behind a wrapper runs.
func wrappedDirs(name string, given map[string]string, dirs []string) []string {
	for _, o := range []string{"-C", "-D", "--chdir", "-R", "--chroot"} {
		if d, moved := given[o]; moved && name != "doas" {
			dirs = union(nil, inDirs(dirs, d))
		}
	}
	if name == "chroot" {
		return []string{Unknown}
	}
	return dirs
}

func hasKey(m map[string]string, key string) bool { _, ok := m[key]; return ok }

// openEnv opens env; -S splits a text into words.
func openEnv(p *parser, words []string, c context) []string {
	w, given := wrappers["env"], map[string]string{}
	for i := 1; i < len(words) && len(words[i]) > 1 && words[i][0] == '-' && words[i] != "--"; i++ {
		split, value := splitOption(words[i])
		if !split {
			next, ok := w.option(words, i, given)
			if !ok {
				break
			}
			i = next
			continue
		}
		rest := words[i+1:]
		if value == "" && len(rest) > 0 {
			value, rest = rest[0], rest[1:]
		}
		if c.single < len(words) || strings.ContainsAny(value, "\\$'\"#`;&|<>(){}*?[]~\n\x00") {
			p.fail(ReasonCode)
			return c.dirs
		}
		opened := slices.Concat(words[:i], strings.Fields(value), rest)
		c.single, c.behind = len(opened), 0
		return openEnv(p, opened, c)
	}
	return p.runWrapped("env", w, words, c)
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
func openXargs(p *parser, words []string, c context) []string {
	rest, given, ok := wrappers["xargs"].arguments(words)
	replacing := slices.DeleteFunc(strings.Fields("-I -i --replace -L -l --max-lines -n --max-args"), func(o string) bool { return !hasKey(given, o) })
	if emptyText := hasKey(given, "-I") && given["-I"] == ""; !ok || emptyText || len(replacing) > 1 || len(words)-len(rest) > c.single {
		p.fail(ReasonOptions)
		return c.dirs
	}
	if len(rest) == 0 {
		return c.dirs
	}
	inner := c.within("xargs")
	inner.input, inner.piped, inner.single, inner.behind = nil, true, min(len(rest), c.single-(len(words)-len(rest))), len(rest)+1
	replaced := given["-I"]
	for _, o := range []string{"-i", "--replace"} {
		if v, is := given[o]; is {
			replaced = cmp.Or(v, "{}")
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
	p.run(started, nil, inner)
	return c.dirs
}

// shellFlags are the short options of shells, but o.
const shellFlags = "abefhiklmnprtuvxBCEHPTsc"

// shellArguments reads the options of a shell. text says that the first word of rest is a text, input that
// the text is the shell's input.
func shellArguments(words []string) (rest []string, text, input, ok bool) {
	i := 1
	for ; i < len(words) && words[i] != "" && (words[i][0] == '-' || words[i][0] == '+'); i++ {
		o := words[i]
		switch letters := strings.TrimSuffix(o[1:], "o"); {
		case o == "--" || o == "-":
			return words[i+1:], text, input, true
		case slices.Contains([]string{"--norc", "--noprofile", "--login", "--posix", "--noediting", "--restricted", "--verbose"}, o):
		case strings.Trim(letters, shellFlags) != "":
			return nil, false, false, false
		default:
			text = text || o[0] == '-' && strings.Contains(o, "c")
			input = input || strings.Contains(o, "s")
			if letters != o[1:] { // -o with its argument
				if i++; i == len(words) || !slices.Contains(setOptions, words[i]) {
					return nil, false, false, false
				}
			}
		}
	}
	return words[min(i, len(words)):], text, input, true
}

// openShell opens sh -c TEXT, and a text that is the shell's input.
func openShell(p *parser, words []string, c context) []string {
	if p.list.count() == 0 || len(words) == 2 && (words[1] == "--version" || words[1] == "--help") {
		return c.dirs // the first: the bounds are exceeded
	}
	inner := c.within("sh")
	inner.posix = ProgramName(words[0]) != "bash" && ProgramName(words[0]) != "rbash"
	rest, text, input, ok := shellArguments(words)
	switch {
	case !ok, text && len(rest) == 0, len(words)-len(rest) > c.single:
		p.fail(ReasonOptions)
	case text:
		p.runApart(rest[0], inner)
	case len(rest) > 0 && !input:
		if len(words)-len(rest) >= c.single || hasUnknown(rest[0]) || strings.HasPrefix(rest[0], "/dev/") || strings.HasPrefix(rest[0], "/proc/") {
			p.fail(ReasonInput)
		}
		p.list.markCode() // of a file
	case c.input != nil:
		p.runInput(*c.input, inner)
	default:
		p.fail(ReasonInput)
	}
	return c.dirs
}

// runApart lists what another shell runs that is given a text: it changes no directory of this one.
func (p *parser) runApart(text string, c context) {
	before := p.moves
	p.runText(text, c)
	p.moves = before
}

// inputless are programs that read nothing from their input.
var inputless = strings.Fields("echo printf ls cd pwd mkdir rmdir rm cp mv touch test [ true false : set export local unset exit return chmod ln date whoami id uname")

// runInput lists what a shell runs that reads its text line by line from its input: a program that it
// starts may take the lines behind it.
func (p *parser) runInput(text string, c context) {
	first := p.list.count()
	p.runApart(text, c)
	if strings.Contains(strings.Trim(text, "\n"), "\n") && slices.ContainsFunc(p.list.since(first), func(c Command) bool { return !slices.Contains(inputless, c.Name) }) {
		p.fail(ReasonInput)
	}
}

func openEval(p *parser, words []string, c context) []string {
	args := words[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if c.single < len(words) {
		p.fail(ReasonCode) // the names of files are run
	}
	return union(c.dirs, p.runText(strings.Join(args, " "), c.within("eval")))
}

func openTrap(p *parser, words []string, c context) []string {
	args := words[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	before := p.moves
	switch {
	case c.single < len(words):
		p.fail(ReasonCode)
	case len(args) > 1 && args[0] != "-":
		inner := c.within("trap")
		inner.dirs = []string{Unknown} // it runs later
		p.runText(args[0], inner)
	}
	if p.moves != before {
		return []string{Unknown}
	}
	return c.dirs
}

func openWatch(p *parser, words []string, c context) []string {
	rest, _, ok := (&wrapper{flags: "bcdegtx", takes: "n", longTake: []string{"--interval"}, long: []string{"--no-title", "--color", "--errexit", "--chgexit", "--differences"}}).arguments(words)
	if !ok || c.single < len(words) {
		p.fail(ReasonOptions)
		return c.dirs
	}
	inner := c.within("watch")
	inner.posix = true
	p.runApart(strings.Join(rest, " "), inner)
	return c.dirs
}

func openSource(p *parser, words []string, c context) []string {
	if len(words) < 2 || c.single < 2 || hasUnknown(words[1]) || strings.HasPrefix(words[1], "/dev/") || strings.HasPrefix(words[1], "/proc/") {
		p.fail(ReasonInput)
	}
	p.moves++
	return []string{Unknown}
}

// Words of find: options and tests without an argument, those with one, actions that write a file, and
// actions that start a program.
var (
	findFlags = strings.Fields("-H -L -P -depth -d -mount -xdev -follow -daystart -noleaf -ignore_readdir_race -empty -executable -readable -writable -true -false -nouser -nogroup " +
		"-print -print0 -ls -prune -quit -delete -not -and -or -a -o ! ( ) ,")
	findTests = strings.Fields("-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -newer -anewer -cnewer -type -xtype -size -mtime -mmin -atime -amin -ctime -cmin -maxdepth " +
		"-mindepth -perm -user -group -uid -gid -links -inum -lname -ilname -samefile -fstype -used -printf")
	findWrites = strings.Fields("-fprint -fprint0 -fls -fprintf")
	findStarts = strings.Fields("-exec -execdir -ok -okdir")
	newerTimes = regexp.MustCompile("^-newer[aBcm][aBcmt]$") // tests with an argument
)

// openFind opens -exec and its like. A word that is not in the tables, or may be several, makes the script
// unknown.
func openFind(p *parser, words []string, c context) []string {
	i := findPaths(words)
	for j, w := range words[1:i] {
		if strings.HasPrefix(w, Unknown) || j+1 >= c.single && strings.HasPrefix(w, "*") {
			p.fail(ReasonOptions)
		}
	}
	if c.behind > i || c.single < i && slices.ContainsFunc(words[c.single:i], hasUnknown) {
		p.fail(ReasonProgram)
	}
	for ; i < len(words); i++ {
		switch w := words[i]; {
		case slices.Contains(findFlags, w):
		case slices.Contains(findTests, w), newerTimes.MatchString(w), slices.Contains(findWrites, w):
			i++
			if w == "-fprintf" {
				i++
			}
		case slices.Contains(findStarts, w):
			i = p.startFound(words, i, c)
		default:
			p.fail(ReasonProgram)
		}
	}
	return c.dirs
}

// findPaths is the index of the first word of find's expression.
func findPaths(words []string) int {
	i := 1
	for i < len(words) && slices.Contains([]string{"-H", "-L", "-P", "-O0", "-O1", "-O2", "-O3", "--"}, words[i]) {
		i++
	}
	for i < len(words) && !strings.HasPrefix(words[i], "-") && words[i] != "(" && words[i] != "!" {
		i++
	}
	return i
}

// startFound lists the program behind -exec and returns the index of its last word.
func (p *parser) startFound(words []string, at int, c context) int {
	end := at + 1
	for end < len(words) && words[end] != ";" && !(words[end] == "+" && words[end-1] == "{}") {
		end++
	}
	started := slices.Clone(words[at+1 : end])
	for j := range started {
		started[j] = strings.ReplaceAll(started[j], "{}", Unknown)
	}
	inner := c.within("find")
	inner.input, inner.single, inner.behind = nil, len(started), 0
	if strings.HasSuffix(words[at], "dir") {
		inner.dirs = []string{Unknown}
	}
	p.run(started, nil, inner)
	return end
}

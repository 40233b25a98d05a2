package shell

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// role says what a program does with the files among its operands.
type role struct {
	reads, writes bool     // all operands
	last          bool     // the last operand is written, the others are read
	skip          int      // operands that are no files: a pattern, a mode
	takes         string   // short options with an argument that is no file
	takesLong     []string // long options with one
	skips         string   // with one of these short options no operand is skipped
	skipsLong     []string // and with one of these long options
	readBy        string   // short options with an argument that is read
	written       []string // options with an argument that is written
	formats       []string // options with a format that can name a file that is written
	target        bool     // -t and --target-directory name the directory into which is written
	more          bool     // it writes files that its arguments do not name, or name in a way that is not read here
	moreBy        string   // short options with which it does
}

// Roles that several programs have.
var (
	reader  = role{reads: true}
	writer  = role{writes: true}
	matcher = role{reads: true, skip: 1, takes: "ABCmedD", skips: "ef", readBy: "f", skipsLong: []string{"--regexp", "--file"}, takesLong: []string{"--regexp", "--max-count", "--after-context", "--before-context", "--context"}}
	changer = role{writes: true, skip: 1, skips: "rwxXst", skipsLong: []string{"--reference"}}
	packer  = role{writes: true, more: true}
	maker   = role{more: true}
)

// roles are the programs of which the operands are files.
var roles = map[string]role{
	"cat": reader, "tac": reader, "nl": reader, "less": {reads: true, written: []string{"-o", "-O", "--log-file", "--LOG-FILE"}}, "more": reader, "bat": reader, "wc": reader, "file": reader,
	"head": {reads: true, takes: "nc"}, "tail": {reads: true, takes: "nc"}, "sort": {reads: true, takes: "ktST", written: []string{"-o", "--output"}}, "uniq": {last: true, takes: "fsw"}, "cut": {reads: true, takes: "dfbc"},
	"xxd": reader, "od": reader, "hexdump": reader, "strings": reader, "base64": reader, "base32": reader, "md5sum": reader, "sha256sum": reader,
	"sha1sum": reader, "stat": reader, "ls": reader, "tree": {reads: true, takes: "LIP", written: []string{"-o"}}, "du": {reads: true, takes: "d"}, "diff": reader, "cmp": reader, "comm": reader,
	"dd": {reads: true, writes: true}, "find": {reads: true, writes: true}, "readlink": reader, "realpath": reader, "paste": reader, "column": reader, "fold": reader, "rev": reader,
	"grep": matcher, "egrep": matcher, "fgrep": matcher,
	"rg": {reads: true, skip: 1, takes: "ABCmegtT", skips: "ef", readBy: "f", skipsLong: []string{"--regexp", "--file", "--files"}, takesLong: []string{"--regexp", "--max-count", "--glob", "--type"}},
	"jq": {reads: true, skip: 1, skips: "f", readBy: "f", skipsLong: []string{"--from-file"}}, "yq": {reads: true, skip: 1}, "awk": {reads: true, skip: 1, takes: "Fv", skips: "f", readBy: "f"},
	"sed": {reads: true, skip: 1, takes: "el", skips: "ef", readBy: "f", skipsLong: []string{"--expression", "--file"}, takesLong: []string{"--expression"}},
	"rm":  writer, "rmdir": writer, "unlink": writer, "shred": {writes: true, takes: "ns"}, "touch": {writes: true, takes: "dr"}, "mkdir": {writes: true, takes: "m"}, "truncate": {writes: true, takes: "sr"},
	"tee": writer, "mkfifo": {writes: true, takes: "m"}, "mv": {writes: true, takes: "S", target: true}, "cp": {last: true, takes: "S", target: true}, "ln": {reads: true, writes: true, takes: "S", target: true},
	"install": {reads: true, writes: true, takes: "mogS", target: true}, "chmod": changer, "chown": {writes: true, skip: 1, skipsLong: []string{"--reference"}}, "chgrp": {writes: true, skip: 1, skipsLong: []string{"--reference"}},
	"rsync": {last: true, takes: "e"}, "scp": {last: true, takes: "iPFo"}, "patch": packer, "gzip": packer, "gunzip": packer, "zip": packer, "unzip": packer, "split": packer, "csplit": packer,
	"xz": packer, "unxz": packer, "bzip2": packer, "bunzip2": packer, "zstd": packer, "tar": maker, "bsdtar": maker, "cpio": maker, "ar": maker, "7z": maker, "wget": maker, "aria2c": maker, "git": {},
	"cc": maker, "c++": maker, "gcc": maker, "g++": maker, "clang": maker, "clang++": maker, "ld": maker, "rustc": maker, "javac": maker, "tsc": maker, "openssl": maker, "gpg": maker, "ssh-keygen": maker, "ffmpeg": maker, "pandoc": maker,
	"curl": {takes: "AbCdeEFhHmPQrtTuUwxXyYz", moreBy: "JOK", formats: []string{"-w", "--write-out"}, written: []string{"-o", "--output", "--output-dir", "-D", "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii", "--stderr", "--libcurl", "--hsts", "--alt-svc", "--etag-save"}},
}

// ProgramsWithFiles are the programs of which Writes has files that their arguments name, and those among them of
// which Reads has none or only some, sorted.
func ProgramsWithFiles() (all, unread []string) {
	all = slices.Sorted(maps.Keys(roles))
	for _, name := range all {
		if r := roles[name]; r.more || r.onlyWritten() {
			unread = append(unread, name)
		}
	}
	return all, unread
}

// onlyWritten reports whether of a program's arguments only those that are written are understood.
func (r role) onlyWritten() bool { return !r.reads && !r.writes && !r.last }

// plainLong are long options that take no next word, in the programs of which the last operand is written.
var plainLong = strings.Fields("--recursive --force --verbose --archive --no-clobber --preserve --parents --interactive --update --link --symbolic-link --dereference --no-dereference --delete --backup " +
	"--count --repeated --unique --ignore-case --zero-terminated --dry-run --compress --progress --human-readable --stats --partial --no-target-directory --one-file-system --sparse --reflink --help --version")

// filesOf returns the files that a command reads and writes, seen from its directories.
func filesOf(c *Command) (reads, writes []string) {
	reads, writes = []string{}, []string{}
	r, known := roles[c.Name]
	switch {
	case c.Name == "dd":
		for _, w := range c.Words[1:] {
			if f, ok := strings.CutPrefix(w, "of="); ok {
				writes = append(writes, inDirs(c.Dirs, f)...)
			} else if f, ok := strings.CutPrefix(w, "if="); ok {
				reads = append(reads, inDirs(c.Dirs, f)...)
			}
		}
		return reads, writes
	case c.Name == "find":
		return filesOfFind(c)
	case !known:
		return reads, writes
	}
	a := r.arguments(c.Words)
	for _, f := range a.written {
		writes = append(writes, inDirs(c.Dirs, f)...)
	}
	for _, f := range a.read {
		if r.onlyWritten() {
			break
		}
		reads = append(reads, inDirs(c.Dirs, f)...)
	}
	inPlace := c.hasOption(inPlaceOptions) || c.Name == "xxd" && len(a.files) > 1
	for i, f := range a.files {
		paths := inDirs(c.Dirs, f)
		last := r.last && (a.loose || i == len(a.files)-1 && len(a.files) > 1 && !a.into)
		if r.reads || r.last && (!last || a.loose) {
			reads = append(reads, paths...)
		}
		if r.writes || last || inPlace {
			writes = append(writes, paths...)
		}
	}
	if r.more || a.more || c.hasOption(unnamedWrites) || c.Name == "git" && gitWrites(c.Words) {
		writes = append(writes, Unknown)
	}
	if slices.ContainsFunc(c.Options, func(o string) bool { return strings.HasPrefix(o, "--files0") }) {
		reads = append(reads, Unknown)
	}
	return reads, writes
}

// Options of programs that have a role, as options and operands have them.
var (
	// inPlaceOptions change the files that are read.
	inPlaceOptions = map[string]*regexp.Regexp{"sed": regexp.MustCompile(`^--?i`), "yq": regexp.MustCompile(`^(-i|--inplace|--in-.*)$`)}
	// unnamedWrites write files that the arguments do not name.
	unnamedWrites = map[string]*regexp.Regexp{
		"git": regexp.MustCompile(`^--ou`), "curl": regexp.MustCompile(`^--(remote-|conf|expand-|ssl-s)`), "cp": regexp.MustCompile(`^--pa`), "file": regexp.MustCompile(`^(-C|--comp.*)$`), "tree": regexp.MustCompile(`^-R$`), "yq": regexp.MustCompile(`^(-s|--split-.*)$`),
	}
	// startedPrograms start a program that the option, or a file of it, names.
	startedPrograms = map[string]*regexp.Regexp{
		"sort": regexp.MustCompile(`^--co`), "rg": regexp.MustCompile(`^--(pre|hostname-bin)`), "bat": regexp.MustCompile(`^--page`), "split": regexp.MustCompile(`^--f`),
		"install": regexp.MustCompile(`^--strip-`), "zip": regexp.MustCompile(`^-[^-]*TT|^--un`), "less": regexp.MustCompile(`^(-k|--lesskey|[+])`), "more": regexp.MustCompile(`^[+]`),
	}
)

// hasOption reports whether an argument is one of the options that a table has for the program.
func (c *Command) hasOption(table map[string]*regexp.Regexp) bool {
	option := table[c.Name]
	return option != nil && (slices.ContainsFunc(c.Options, option.MatchString) || slices.ContainsFunc(c.Operands, option.MatchString))
}

// gitElsewhere are options before git's subcommand, and subcommands, with which it writes files that may lie anywhere.
var gitElsewhere = regexp.MustCompile(`^(clone|init|worktree|submodule|archive|bundle|format-patch|-C|--git-dir(=.*)?|--work-tree(=.*)?)$`)

// gitWrites reports whether git, by its subcommand or an option before it, writes files that may lie anywhere.
func gitWrites(words []string) bool {
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case hasUnknown(w) || gitElsewhere.MatchString(w):
			return true
		case w == "-c" || w == "--namespace" || w == "--config-env" || w == "--attr-source":
			i++ // its argument
		case !strings.HasPrefix(w, "-"):
			return false
		}
	}
	return false
}

func filesOfFind(c *Command) (reads, writes []string) {
	reads, writes = []string{}, []string{}
	end := findPaths(c.Words)
	for _, w := range c.Words[1:end] {
		if !strings.HasPrefix(w, "-") {
			reads = append(reads, inDirs(c.Dirs, w)...)
		}
	}
	if slices.Contains(c.Words, "-delete") {
		writes = append(writes, reads...)
		if len(reads) == 0 {
			writes = append(writes, inDirs(c.Dirs, ".")...)
		}
	}
	for i := end; i+1 < len(c.Words); i++ {
		if slices.Contains(findWrites, c.Words[i]) {
			writes = append(writes, inDirs(c.Dirs, c.Words[i+1])...)
		}
	}
	return reads, writes
}

// arguments are the files among a command's arguments.
type arguments struct {
	files         []string // operands
	read, written []string // of options
	into          bool     // an option names the target
	more          bool     // an option writes a file that it does not name
	loose         bool     // an option may have taken an operand as its argument
	skip          int      // operands to be skipped yet
}

// arguments reads the words of a command.
func (r role) arguments(words []string) arguments {
	a := arguments{skip: r.skip}
	only := false
	for i := 1; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--" && !only:
			only = true
		case len(w) > 2 && w[:2] == "--" && !only:
			i = r.longOption(&a, words, i)
		case len(w) > 1 && w[0] == '-' && !only:
			i = r.shortOptions(&a, words, i)
		case a.skip > 0:
			if a.skip--; a.loose {
				a.files = append(a.files, w)
			}
		case w != "-":
			a.files = append(a.files, w)
		}
	}
	return a
}

// longOption reads the long option at i, also an abbreviated one, and returns the index of its last word.
func (r role) longOption(a *arguments, words []string, i int) int {
	name, value, joined := strings.Cut(words[i], "=")
	begins := func(list []string) bool {
		return slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(o, name) })
	}
	if begins(r.skipsLong) {
		a.skip = 0
	}
	written, format, into := begins(r.written), begins(r.formats), r.target && strings.HasPrefix("--target-directory", name)
	if !joined && (written || format || into || begins(r.takesLong) || begins(r.skipsLong)) && i+1 < len(words) {
		i++
		value = words[i]
	}
	switch a.into = a.into || into; {
	case written, into:
		a.written = append(a.written, value)
	case format:
		a.more = a.more || mayNameFile(value)
	case value != "" && (strings.ContainsAny(value, "/.~") || begins(r.skipsLong)):
		a.read = append(a.read, value) // --file=F
	case !joined && value == "" && !slices.Contains(plainLong, name):
		a.loose = true
	}
	return i
}

// shortOptions reads the cluster of short options at i and returns the index of its last word.
func (r role) shortOptions(a *arguments, words []string, i int) int {
	w := words[i]
	for j := 1; j < len(w); j++ {
		letter := w[j : j+1]
		if strings.Contains(r.skips, letter) {
			a.skip = 0
		}
		a.more = a.more || strings.Contains(r.moreBy, letter)
		written, into := slices.Contains(r.written, "-"+letter), r.target && letter == "t"
		if !written && !into && !strings.Contains(r.takes+r.readBy, letter) {
			continue
		}
		value := w[j+1:]
		if value == "" && i+1 < len(words) {
			i++
			value = words[i]
		}
		switch a.into = a.into || into; {
		case written, into:
			a.written = append(a.written, value)
		case slices.Contains(r.formats, "-"+letter):
			a.more = a.more || mayNameFile(value)
		case strings.Contains(r.readBy, letter):
			a.read = append(a.read, value)
		}
		break
	}
	return i
}

// mayNameFile reports whether a format of curl names a file that is written, or is in a file or a variable.
func mayNameFile(format string) bool {
	return strings.Contains(format, "%output{") || strings.HasPrefix(format, "@") || hasUnknown(format)
}

// interpreters run code of their own language that is given in arguments, input or a file.
var interpreters = strings.Fields("python python2 python3 node nodejs deno bun perl ruby php lua luajit tclsh rscript julia groovy java jshell scala swift ghc runghc guile racket elixir erl " +
	"ipython pypy pypy3 ts-node tsx vim vi nvim ex ed emacs sqlite3 psql mysql mariadb mongosh redis-cli gawk mawk nawk m4 bc dc make gmake cmake ninja just task rake ant mvn gradle " +
	"tclsh8.6 wish dotnet ssh scp sftp rsync socat nc ncat telnet docker podman kubectl oc source . fish tmux screen rlwrap jq-interactive")

// awkActs are what a program of awk runs, writes, or reads with that its operands do not name.
var awkActs = regexp.MustCompile(`[|>@]|\\\n|system|getline|ENVIRON|ARG[VC]|SYMTAB|FUNCTAB|PROCINFO`)

// simpleSed are scripts of sed that print, delete and replace: an address, two of them, or none, and a command.
var simpleSed = func() *regexp.Regexp {
	address := `([0-9]+|\$|/` + sedPattern("/") + `/)`
	commands := "p|d|q|="
	for _, d := range []string{"/", "|", "#"} {
		commands += "|s" + regexp.QuoteMeta(d) + sedPattern(d) + regexp.QuoteMeta(d) + `([^\\\n` + d + `]|\\[^\n` + d + `])*` + regexp.QuoteMeta(d) + "[gpI0-9]*"
	}
	return regexp.MustCompile("^(" + address + "(," + address + ")?)?(" + commands + ")$")
}()

// sedPattern is a pattern of sed that every reader ends at the same delimiter: none in it is escaped or stands in
// brackets.
func sedPattern(delimiter string) string {
	bracket := `\[\^?([^]^[\\\n` + delimiter + `]|\\[nt]|\[:[a-z]+:\])+\]`
	return `([^[\\\n` + delimiter + `]|\\[^\n` + delimiter + `]|` + bracket + `)*`
}

// runsCode reports whether a command runs code that is not opened.
func runsCode(c *Command) bool {
	switch {
	case strings.Contains(c.Name, "/"):
		return true
	case slices.Contains(interpreters, c.Name), strings.HasPrefix(c.Name, "python"):
		return len(c.Words) != 2 || c.Words[1] != "--version" && c.Words[1] != "-V" && !(c.Words[1] == "-v" && strings.HasPrefix(c.Name, "node"))
	case c.Name == "awk":
		program := strings.Join(c.Words[1:], " ")
		return hasUnknown(program) || awkActs.MatchString(program) || slices.ContainsFunc(c.Words[1:], func(w string) bool {
			return strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "-F") && !strings.HasPrefix(w, "-v")
		})
	case c.Name == "sed":
		return !plainSed(c)
	}
	return c.hasOption(startedPrograms)
}

func plainSed(c *Command) bool {
	scripts, given := []string{}, false
	for i := 1; i < len(c.Words); i++ {
		switch w := c.Words[i]; {
		case w == "-e" || w == "--expression":
			if i++; i < len(c.Words) {
				scripts, given = append(scripts, c.Words[i]), true
			}
		case strings.HasPrefix(w, "-"):
			if !slices.Contains([]string{"-n", "-i", "-E", "-r", "-ne", "-i.bak", "-En", "-nE", "-s"}, w) || w == "-ne" {
				return false
			}
		case !given && len(scripts) == 0:
			scripts = append(scripts, w)
		}
	}
	for _, s := range scripts {
		for _, part := range strings.Split(s, ";") {
			if !simpleSed.MatchString(strings.TrimSpace(part)) {
				return false
			}
		}
	}
	return len(scripts) > 0
}

package shell

import (
	"regexp"
	"slices"
	"strings"
)

// role says what a program does with the files among its operands.
type role struct {
	reads, writes bool   // all operands
	last          bool   // the last operand is written, the others are read
	skip          int    // operands that are no files: a pattern, a mode
	takes         string // short options whose next word is no file
	patternBy     string // with one of these options no operand is skipped
	written       string // short option whose next word is written
}

// roles are the programs of which the operands are files.
var roles = map[string]role{
	"cat": {reads: true}, "tac": {reads: true}, "nl": {reads: true}, "less": {reads: true}, "more": {reads: true}, "bat": {reads: true}, "wc": {reads: true}, "file": {reads: true},
	"head": {reads: true, takes: "nc"}, "tail": {reads: true, takes: "nc"}, "sort": {reads: true, takes: "kt", written: "o"}, "uniq": {last: true}, "cut": {reads: true, takes: "dfbc"},
	"xxd": {reads: true}, "od": {reads: true}, "hexdump": {reads: true}, "strings": {reads: true}, "base64": {reads: true}, "base32": {reads: true}, "md5sum": {reads: true}, "sha256sum": {reads: true},
	"sha1sum": {reads: true}, "stat": {reads: true}, "ls": {reads: true}, "tree": {reads: true, takes: "LIP"}, "du": {reads: true, takes: "d"}, "diff": {reads: true}, "cmp": {reads: true}, "comm": {reads: true},
	"find": {}, "readlink": {reads: true}, "realpath": {reads: true}, "paste": {reads: true}, "column": {reads: true}, "fold": {reads: true}, "rev": {reads: true},
	"grep": {reads: true, skip: 1, takes: "ABCmef", patternBy: "ef"}, "egrep": {reads: true, skip: 1, takes: "ABCmef", patternBy: "ef"}, "fgrep": {reads: true, skip: 1, takes: "ABCmef", patternBy: "ef"},
	"rg": {reads: true, skip: 1, takes: "ABCmefgtT", patternBy: "ef"}, "jq": {reads: true, skip: 1}, "yq": {reads: true, skip: 1}, "awk": {reads: true, skip: 1, takes: "Fv"}, "sed": {reads: true, skip: 1, takes: "ef", patternBy: "ef"},
	"rm": {writes: true}, "rmdir": {writes: true}, "unlink": {writes: true}, "shred": {writes: true}, "touch": {writes: true, takes: "dr"}, "mkdir": {writes: true, takes: "m"}, "truncate": {writes: true, takes: "sr"},
	"tee": {writes: true}, "mkfifo": {writes: true}, "mv": {writes: true, takes: "S"}, "cp": {last: true, takes: "S"}, "ln": {reads: true, writes: true}, "install": {last: true, takes: "mog"},
	"chmod": {writes: true, skip: 1}, "chown": {writes: true, skip: 1}, "chgrp": {writes: true, skip: 1}, "rsync": {last: true, takes: "e"}, "scp": {last: true, takes: "iPFo"},
	"patch": {writes: true}, "gzip": {writes: true}, "gunzip": {writes: true}, "zip": {writes: true}, "unzip": {writes: true}, "split": {writes: true}, "csplit": {writes: true},
}

// filesOf returns the files that a command reads and writes, seen from its directories.
func filesOf(c *Command) (reads, writes []string) {
	reads, writes = []string{}, []string{}
	if c.Name == "dd" {
		for _, w := range c.Words[1:] {
			if f, ok := strings.CutPrefix(w, "of="); ok {
				writes = append(writes, inDirs(c.Dirs, f)...)
			} else if f, ok := strings.CutPrefix(w, "if="); ok {
				reads = append(reads, inDirs(c.Dirs, f)...)
			}
		}
		return reads, writes
	}
	if c.Name == "find" {
		for _, w := range c.Words[1:] {
			if strings.HasPrefix(w, "-") || w == "(" || w == "!" {
				break
			}
			reads = append(reads, inDirs(c.Dirs, w)...)
		}
		if slices.Contains(c.Options, "-delete") {
			writes = append(writes, reads...)
		}
		return reads, writes
	}
	r, known := roles[c.Name]
	if !known {
		return reads, writes
	}
	files, written, into := r.operands(c.Words)
	for _, f := range written {
		writes = append(writes, inDirs(c.Dirs, f)...)
	}
	inPlace := c.Name == "sed" && slices.ContainsFunc(c.Options, func(o string) bool { return strings.HasPrefix(o, "-i") || strings.HasPrefix(o, "--i") })
	for i, f := range files {
		paths := inDirs(c.Dirs, f)
		last := r.last && i == len(files)-1 && len(files) > 1 && !into
		if r.reads || r.last && !last {
			reads = append(reads, paths...)
		}
		if r.writes || last || inPlace {
			writes = append(writes, paths...)
		}
	}
	return reads, writes
}

// operands returns the files among the arguments, and those that options write. into says that an
// option names the target.
func (r role) operands(words []string) (files, written []string, into bool) {
	skip, only := r.skip, false
	for i := 1; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--" && !only:
			only = true
		case len(w) > 1 && w[0] == '-' && !only:
			name, value, joined := strings.Cut(w, "=")
			if (r.last || r.writes) && isTarget(name) {
				into = true
				if !joined {
					value = cutTarget(name)
				}
				if value == "" && i+1 < len(words) {
					i++
					value = words[i]
				}
				written = append(written, value)
				continue
			}
			if joined {
				if strings.HasPrefix(name, "--") && strings.ContainsAny(value, "/.~") {
					files = append(files, value) // --target-directory=DIR, --file=F
				}
				continue
			}
			letter := w[len(w)-1:]
			if w[1] != '-' && strings.Contains(r.patternBy, letter) && r.patternBy != "" {
				skip = 0
			}
			if w[1] != '-' && strings.Contains(r.written, letter) && r.written != "" && i+1 < len(words) {
				i++
				written = append(written, words[i])
			} else if w[1] != '-' && strings.Contains(r.takes, letter) && r.takes != "" {
				i++
			}
		case skip > 0:
			skip--
		case w != "-":
			files = append(files, w)
		}
	}
	return files, written, into
}

// isTarget reports whether an option names the directory into which cp, mv, ln and install write, as a
// letter in a cluster or abbreviated.
func isTarget(name string) bool {
	if strings.HasPrefix(name, "--") {
		return len(name) > 2 && strings.HasPrefix("--target-directory", name)
	}
	return strings.Contains(name, "t")
}

// cutTarget is the directory that is joined to the letter t of a cluster.
func cutTarget(name string) string {
	if strings.HasPrefix(name, "--") {
		return ""
	}
	_, value, _ := strings.Cut(name, "t")
	return value
}

// interpreters run code of their own language that is given in arguments, input or a file.
var interpreters = strings.Fields("python python2 python3 node nodejs deno bun perl ruby php lua luajit tclsh rscript julia groovy java jshell scala swift ghc runghc guile racket elixir erl " +
	"ipython pypy pypy3 ts-node tsx vim vi nvim ex ed emacs sqlite3 psql mysql mariadb mongosh redis-cli gawk mawk nawk m4 bc dc make gmake cmake ninja just task rake ant mvn gradle " +
	"tclsh8.6 wish dotnet ssh socat nc ncat telnet docker podman kubectl oc source . fish tmux screen rlwrap jq-interactive")

// simpleSed are scripts of sed that print, delete and replace.
var simpleSed = regexp.MustCompile(`^(([0-9]+|\$|/[^/\n]*/)(,([0-9]+|\$|/[^/\n]*/))?)?(p|d|q|=|s/[^/\n]*/[^/\n]*/[gpI0-9]*|s\|[^|\n]*\|[^|\n]*\|[gpI0-9]*|s#[^#\n]*#[^#\n]*#[gpI0-9]*)$`)

// runsCode reports whether a command runs code that is not opened.
func runsCode(c *Command) bool {
	switch {
	case strings.Contains(c.Name, "/"):
		return true
	case slices.Contains(interpreters, c.Name), strings.HasPrefix(c.Name, "python"):
		return len(c.Words) != 2 || c.Words[1] != "--version" && c.Words[1] != "-v" && c.Words[1] != "-V"
	case c.Name == "awk":
		program := strings.Join(c.Words[1:], " ")
		return hasUnknown(program) || strings.ContainsAny(program, "|>@") || strings.Contains(program, "system") || strings.Contains(program, "getline") || strings.Contains(program, "ENVIRON") || slices.ContainsFunc(c.Words[1:], func(w string) bool {
			return strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "-F") && !strings.HasPrefix(w, "-v")
		})
	case c.Name == "sed":
		return !plainSed(c)
	}
	return false
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

package shell

import (
	"slices"
	"strings"
)

// commandList is what the texts start: maxCommands commands at most, with maxWords words and files, and
// maxBytes bytes.
type commandList struct {
	*failures
	commands []Command
	words    int
	bytes    int
}

func (l *commandList) count() int { return len(l.commands) }

// since are the commands from an index on.
func (l *commandList) since(first int) []Command { return l.commands[first:] }

// markCode notes that the last command runs code that is not opened.
func (l *commandList) markCode() { l.commands[len(l.commands)-1].Code = true }

// add lists a command.
func (l *commandList) add(cmd Command, c context) {
	cmd.Piped, cmd.Pipes = c.piped, c.pipes
	cmd.Via = append([]string{}, c.via...)
	cmd.Dirs = append([]string{}, c.dirs...)
	cmd.Redirections = append([]Redirection{}, c.redirections...)
	cmd.Known = !c.unknown && !slices.ContainsFunc(cmd.Words, hasUnknown) && !slices.ContainsFunc(cmd.Dirs, hasUnknown)
	if cmd.Words == nil {
		cmd.Words = []string{}
	}
	if cmd.Assignments == nil {
		cmd.Assignments = map[string]string{}
	}
	cmd.Options, cmd.Operands = splitArguments(cmd.Words)
	mayBeOptions := cmd.Words[:optionsEnd(&cmd)]
	if slices.ContainsFunc(mayBeOptions[min(max(c.single, 1), len(mayBeOptions)):], func(w string) bool { return strings.HasPrefix(w, "*") || strings.HasPrefix(w, Unknown) }) {
		cmd.Options = append(cmd.Options, UnknownOption)
	}
	cmd.Reads, cmd.Writes = filesOf(&cmd)
	cmd.Reads, cmd.Writes = append(cmd.Reads, c.reads...), append(cmd.Writes, c.writes...)
	cmd.Code = cmd.Code || runsCode(&cmd)
	l.words += len(cmd.Words) + len(cmd.Reads) + len(cmd.Writes) + 1
	l.bytes += cmd.size()
	if len(l.commands) >= maxCommands || l.words > maxWords || l.bytes > maxBytes {
		l.fail(ReasonTooLarge)
		return
	}
	l.commands = append(l.commands, cmd)
}

// endsOptions are programs that take no word behind -- for an option.
var endsOptions = []string{"grep", "egrep", "fgrep", "rg"}

// optionsEnd is the number of words of a command before a -- that ends its options, or of all. A -- behind an option,
// or behind a word that may become one, may be that option's value.
func optionsEnd(c *Command) int {
	end := slices.Index(c.Words, "--")
	if end < 1 || !slices.Contains(endsOptions, c.Name) || slices.ContainsFunc(c.Words[:end], hasUnknown) {
		return len(c.Words)
	}
	if before := c.Words[end-1]; before == "" || strings.Contains("-*?[+@!", before[:1]) {
		return len(c.Words)
	}
	return end
}

// unsettle makes the directories of the commands from an index on unknown, and adds an unknown file to
// the files that they name: a part of the text that may run before them changes the directory.
func (l *commandList) unsettle(first int) {
	for i := first; i < len(l.commands); i++ {
		c := &l.commands[i]
		if len(c.Dirs) == 1 && hasUnknown(c.Dirs[0]) {
			continue
		}
		c.Dirs, c.Known = []string{Unknown}, false
		for _, files := range []*[]string{&c.Reads, &c.Writes} {
			if len(*files) > 0 {
				*files = append(*files, Unknown)
			}
		}
	}
}

func (c *Command) size() (n int) {
	for _, list := range [][]string{c.Words, c.Options, c.Operands, c.Reads, c.Writes, c.Via, c.Dirs} {
		for _, s := range list {
			n += len(s) + 16
		}
	}
	for k, v := range c.Assignments {
		n += len(k) + len(v) + 32
	}
	for _, r := range c.Redirections {
		n += len(r.Target) + 32
	}
	return n + 128
}

// splitArguments separates options from operands. Every argument that begins with a dash is an
// option, also behind --: some programs go on.
func splitArguments(words []string) (options, operands []string) {
	options, operands = []string{}, []string{}
	seen := map[string]bool{}
	add := func(o string) {
		if !seen[o] {
			seen[o] = true
			options = append(options, o)
		}
	}
	for i, w := range words {
		switch {
		case i == 0:
		case len(w) < 2 || w[0] != '-':
			operands = append(operands, w)
		default:
			name, _, _ := strings.Cut(w, "=")
			add(name)
			for j := 1; w[1] != '-' && j < len(name) && len(name) > 2; j++ {
				add("-" + name[j:j+1])
			}
		}
	}
	return options, operands
}

package redact

import (
	"slices"
	"strings"
)

// command is a program that takes a password as an argument with a name that does not say so.
// A password after --password, or in PGPASSWORD=, is found without this table.
type command struct {
	name          string
	passwordFlags []string // flags followed by the password
	gluedFlags    []string // flags that the password is glued to: -psecret
	userFlags     []string // flags followed by name:password, or name%password
	passwordIndex int      // position of the password among the arguments without a flag; 0: none
	omitFirst     string   // letter of a flag with which the first of them is left out
	slashFlags    bool     // flags begin with a slash, too
}

var commands = []command{
	{name: "mysql", gluedFlags: []string{"-p"}}, {name: "mysqldump", gluedFlags: []string{"-p"}}, {name: "mysqladmin", gluedFlags: []string{"-p"}},
	{name: "mysqlimport", gluedFlags: []string{"-p"}}, {name: "mysqlshow", gluedFlags: []string{"-p"}}, {name: "mysqlsh", gluedFlags: []string{"-p"}},
	{name: "mariadb", gluedFlags: []string{"-p"}}, {name: "mariadb-dump", gluedFlags: []string{"-p"}}, {name: "mariadb-admin", gluedFlags: []string{"-p"}},
	{name: "curl", userFlags: []string{"-u", "--user", "-U", "--proxy-user"}, gluedFlags: []string{"-u"}},
	{name: "sshpass", passwordFlags: []string{"-p"}, gluedFlags: []string{"-p"}},
	{name: "redis-cli", passwordFlags: []string{"-a", "--pass"}}, {name: "keydb-cli", passwordFlags: []string{"-a", "--pass"}}, {name: "valkey-cli", passwordFlags: []string{"-a", "--pass"}},
	{name: "docker login", passwordFlags: []string{"-p"}, gluedFlags: []string{"-p"}}, {name: "podman login", passwordFlags: []string{"-p"}, gluedFlags: []string{"-p"}}, {name: "registry login", passwordFlags: []string{"-p"}},
	{name: "buildah login", passwordFlags: []string{"-p"}, gluedFlags: []string{"-p"}}, {name: "oc login", passwordFlags: []string{"-p"}}, {name: "az login", passwordFlags: []string{"-p"}},
	{name: "net user", passwordIndex: 2, slashFlags: true}, {name: "htpasswd", passwordIndex: 3, omitFirst: "n"},
	{name: "mongo", passwordFlags: []string{"-p"}}, {name: "mongosh", passwordFlags: []string{"-p"}}, {name: "mongodump", passwordFlags: []string{"-p"}}, {name: "mongorestore", passwordFlags: []string{"-p"}},
	{name: "smbclient", userFlags: []string{"-U", "--user"}}, {name: "rpcclient", userFlags: []string{"-U"}},
	{name: "ldapsearch", passwordFlags: []string{"-w"}, gluedFlags: []string{"-w"}}, {name: "ldapmodify", passwordFlags: []string{"-w"}, gluedFlags: []string{"-w"}}, {name: "ldapadd", passwordFlags: []string{"-w"}, gluedFlags: []string{"-w"}}, {name: "ldapwhoami", passwordFlags: []string{"-w"}, gluedFlags: []string{"-w"}},
	{name: "unzip", passwordFlags: []string{"-P"}, gluedFlags: []string{"-P"}}, {name: "zip", passwordFlags: []string{"-P"}, gluedFlags: []string{"-P"}}, {name: "7z", gluedFlags: []string{"-p"}}, {name: "unrar", gluedFlags: []string{"-p"}},
	{name: "sqlcmd", passwordFlags: []string{"-P"}, gluedFlags: []string{"-P"}}, {name: "isql", passwordFlags: []string{"-P"}, gluedFlags: []string{"-P"}},
	{name: "plink", passwordFlags: []string{"-pw"}}, {name: "pscp", passwordFlags: []string{"-pw"}}, {name: "psexec", passwordFlags: []string{"-p"}}, {name: "evil-winrm", passwordFlags: []string{"-p"}},
	{name: "xfreerdp", gluedFlags: []string{"/p:"}}, {name: "ipmitool", passwordFlags: []string{"-P"}},
	{name: "mosquitto_pub", passwordFlags: []string{"-P"}}, {name: "mosquitto_sub", passwordFlags: []string{"-P"}}, {name: "cqlsh", passwordFlags: []string{"-p"}},
	{name: "clickhouse-client", passwordFlags: []string{"--password"}}, {name: "openssl", passwordFlags: []string{"-k"}}, {name: "keytool", passwordFlags: []string{"-storepass", "-keypass"}},
	{name: "ssh-keygen", passwordFlags: []string{"-N", "-P"}}, {name: "twine upload", passwordFlags: []string{"-p"}}, {name: "lftp", userFlags: []string{"-u"}},
	{name: "http", userFlags: []string{"-a"}}, {name: "https", userFlags: []string{"-a"}}, {name: "cypher-shell", passwordFlags: []string{"-p"}},
}

const (
	// commandReach is how much of a command is searched, in bytes, whatever stands there.
	commandReach = 512
	// longReach is how much of it is searched up to what shows the command's end.
	longReach = 4096
)

var commandNames = func() map[string]*command {
	m := map[string]*command{}
	for i := range commands {
		m[commands[i].name] = &commands[i]
	}
	return m
}()

// barePassword is the rule for the commands with a password that follows no flag.
var barePassword = rule{detector: Assignment, literals: []string{"net user ", "htpasswd "}, match: func(s string, start, after int) (from, to, next int) {
	return commandPassword(s, commandNames[s[start:after-1]], after, nextArgument)
}}

// barePlainPassword is barePassword with the other reading of quotes.
var barePlainPassword = rule{detector: Assignment, literals: barePassword.literals, match: func(s string, start, after int) (from, to, next int) {
	return commandPassword(s, commandNames[s[start:after-1]], after, plainArgument)
}}

// optionLetters are the first letters of the commands' flags.
var optionLetters = func() (t [256]bool) {
	for _, c := range commands {
		for _, list := range [...][]string{c.passwordFlags, c.gluedFlags, c.userFlags} {
			for _, flag := range list {
				if flag[0] == '-' && flag[1] != '-' { // scanFlag handles flags with two dashes
					t[flag[1]] = true
				}
			}
		}
	}
	return t
}()

// commandBack is how far before a flag the scanner looks for its command, in bytes.
const commandBack = 256

// scanOption handles a flag with its dash at i: it finds the password if the flag belongs to a
// command of the table.
func (sc *textScanner) scanOption(i int) {
	if i+1 >= len(sc.s) || !optionLetters[sc.s[i+1]] {
		return
	}
	var c *command
	after, searched, plain := 0, -1, 0
	for k, argument := range [...]argumentReader{nextArgument, plainArgument} {
		read := &sc.commands[k]
		if i < read.arguments {
			continue
		}
		if read.options != searched { // the other reading did not look for the same command
			searched = read.options
			c, after = sc.commandBefore(i, searched)
		}
		read.options = i
		if c == nil {
			continue
		}
		from, to, next := commandPassword(sc.s, c, after, argument)
		sc.budget.charge((next - after) / 2)
		read.arguments, plain = next, next
		sc.addSpan(from, to, Assignment)
	}
	if plain > after && plain < after+commandReach && !hasOddSigns(sc.s[after:min(len(sc.s), plain+1)]) {
		c = nil // its arguments were read
	}
	sc.scanInnerOption(i, c, after)
}

// scanInnerOption handles a flag that may belong to a command which commandBefore does not see or
// whose arguments commandPassword misreads: in $(…), in the items of a list in code, in a quoted
// command, on lines that a backslash joins, far before the flag, or behind the arguments of another
// command. c is the command that commandBefore found, if any.
func (sc *textScanner) scanInnerOption(i int, c *command, after int) {
	start := max(0, i-longReach, sc.cuts)
	sc.cuts = i
	if i < sc.inner {
		return
	}
	cut, sign := lastCut(sc.s[start:i])
	if sign || i-start > commandBack {
		sc.budget.charge(5 + (i-start-cut)/2)
		if found, end := lastCommand(sc.s[:i], start+cut, true); found != nil {
			c, after = found, end
		}
	}
	if c == nil {
		return
	}
	from, to, next := innerPassword(sc.s, c, after)
	sc.budget.charge((next - after) / 4)
	sc.inner = next
	sc.addSpan(from, to, Assignment)
}

// hasOddSigns reports whether nextArgument may misread the arguments of a command: they may be a list in
// code, or hold $'…', joints or the backslashes that join lines.
func hasOddSigns(s string) bool {
	quote, sign := false, false
	for i := range len(s) {
		switch s[i] {
		case '\\':
			return true
		case '\'':
			quote = true
			if i+1 < len(s) && s[i+1] == '"' {
				return true
			}
		case '"':
			quote = true
		case ',', '$':
			sign = true
		}
	}
	return quote && sign
}

// lastCut returns where the last command in a text may begin, and whether a sign is behind that place
// which commandBefore does not read.
func lastCut(s string) (cut int, sign bool) {
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case '|', ';', '&':
			return i + 1, sign
		case '(', '`':
			return i + 1, true
		case '[', '@':
			sign = sign || i+1 < len(s) && byteClass[s[i+1]]&(alnum|quoteChar) != 0 || i+1 < len(s) && s[i+1] == '\\'
		case '\n':
			if !continues(s[:i]) {
				return i + 1, true
			}
			sign = true
		case 'n', 'r': // of an escaped line break
			line := strings.TrimRight(s[:i], `\`)
			if slashes := i - len(line); (slashes == 1 || slashes == 2) && !continues(line) {
				return i + 1, true
			}
		}
	}
	return 0, sign
}

// continues reports whether a line goes on behind its line break: it ends with a backslash, or
// inside of a list of code.
func continues(line string) bool {
	line = strings.TrimSuffix(line, "\r")
	return line != "" && strings.IndexByte(`\,[`, line[len(line)-1]) >= 0
}

// commandRead is how far one reading of the commands in a text has come.
type commandRead struct {
	arguments int // end of the arguments that were read for a command
	options   int // end of the text that was read for commands
}

// commandBefore finds the command that the flag at i belongs to, and the position of its
// arguments; the command does not begin before from.
func (sc *textScanner) commandBefore(i, from int) (c *command, after int) {
	least := max(0, i-commandBack, from)
	if cut := strings.LastIndexAny(sc.s[least:i], "\n|;&"); cut >= 0 {
		least += cut + 1
	}
	sc.budget.charge(20 + 2*(i-least))
	return lastCommand(sc.s[:i], least, false)
}

// lastCommand finds the last command of the table in s from a position on, and the position of
// its arguments. inner says that it may be written as in code: @mysql of Make, "docker", ["login".
func lastCommand(s string, from int, inner bool) (c *command, after int) {
	previous := ""
	for at := from; at < len(s); {
		at = runEnd(s, at, space|quoteChar)
		end := at
		for end < len(s) && byteClass[s[end]]&(space|quoteChar) == 0 {
			end++
		}
		name := s[at:end]
		if inner {
			name = strings.TrimLeft(strings.TrimRight(name, `\,`), "@![,")
		}
		base := programName(name)
		if found := commandNames[base]; found != nil {
			c, after = found, end
		} else if programs[previous] {
			if found = commandNames[previous+" "+base]; found != nil {
				c, after = found, end
			}
		}
		if at = end; base != "" || !inner {
			previous = base
		}
	}
	return c, after
}

// commandPassword finds the password among the arguments of a command in a text.
func commandPassword(s string, c *command, after int, argument argumentReader) (from, to, next int) {
	if c == nil {
		return 0, 0, after
	}
	limit := min(len(s), after+commandReach)
	want, words := "", 0
	for at := after; at < limit; {
		at = runEnd(s[:limit], at, space)
		from, to, end := argument(s[:limit], at)
		if end == at || s[at] == '\n' || strings.IndexByte("|;&", s[at]) >= 0 {
			return 0, 0, at
		}
		arg := s[from:to]
		v, ok := c.secretIn(want, arg, &words)
		v += openingQuote(arg[v:])
		switch {
		case ok && !isHarmlessValue(arg[v:]) && !isBetween(arg[v:], s[to:]):
			return from + v, to, end
		case ok:
			return 0, 0, end
		}
		want, at = arg, end
	}
	return 0, 0, limit
}

// isBetween reports whether an argument is what commandPassword reads between two items of a list in
// code, or a shell's $ before a quote; rest is the text behind it. innerPassword reads these.
func isBetween(arg, rest string) bool {
	return arg == "$" && openingQuote(rest) > 0 || strings.IndexByte(arg, ',') >= 0 && strings.Trim(arg, ", \t\r\n[\\") == ""
}

// innerPassword finds the password among the arguments of a command in a text, up to its end: a line
// break, another command or prose.
func innerPassword(s string, c *command, after int) (from, to, next int) {
	limit := min(len(s), after+longReach)
	flag, words := "", 0
	for at := after + openingQuote(s[after:]); at < limit; { // a quote closes the command's name
		start := runEnd(s[:limit], at, space)
		if n := strings.IndexByte(s[at:start], '\n'); n >= 0 && !continues(s[:at+n]) {
			return 0, 0, at
		}
		if n, on := escapedSpace(s[start:limit]); on {
			at = start + n
			continue
		} else if n > 0 {
			return 0, 0, start
		}
		from, to, end := innerArgument(s[:limit], start)
		closes := start < from && from < limit && strings.IndexByte("\r\n);", s[from]) >= 0 // a quote around the command
		if end == start || closes || strings.IndexByte("|;&`", s[start]) >= 0 {
			return 0, 0, start
		}
		arg := s[from:to]
		if at = end; arg == `\` && to < len(s) && (s[to] == '\n' || s[to] == '\r') { // joins two lines
			continue
		}
		if v, ok := c.secretIn(flag, arg, &words); ok {
			if v = min(v+anyOpeningQuote(s[from+v:]), len(arg)); isHarmlessValue(arg[v:]) {
				return 0, 0, end
			}
			return from + v, to, end
		}
		if n := c.endIn(s, start, end, from); n >= 0 {
			return 0, 0, n
		}
		flag = arg
	}
	return 0, 0, limit
}

// escapedSpace returns the length of the escaped tab or line breaks that s begins with, or 0; on says
// that a command goes on behind it.
func escapedSpace(s string) (n int, on bool) {
	for n < len(s) && s[n] == '\\' {
		n++
	}
	if n == 0 || n == len(s) || s[n] != 'n' && s[n] != 'r' && s[n] != 't' {
		return 0, false
	}
	on = n >= 3 || s[n] == 't' // behind an escaped backslash
	if n++; s[n-1] == 'r' {
		more, _ := escapedSpace(s[n:min(len(s), n+8)])
		n += more
	}
	return n, on
}

// endIn returns where the command ends in an argument from start to end, because another one begins
// there or because it is prose, or -1. from is the argument's start without quotes.
func (c *command) endIn(s string, start, end, from int) int {
	arg := s[start:end]
	if start == from {
		if byteClass[arg[0]]&(lower|digit) != 0 && programs[arg] && arg != c.name || len(arg) > 1 && strings.IndexByte(".,:?!", arg[len(arg)-1]) >= 0 {
			return start
		}
	}
	for i := range len(arg) {
		if (arg[i] == '(' || arg[i] == '`') && programs[arg[i+1:runEnd(arg, i+1, word)]] {
			return start + i
		}
	}
	return -1
}

// innerArgument is nextArgument for the items of a list in code, for $'…' and for what is quoted
// in a quoted command.
func innerArgument(s string, at int) (from, to, end int) {
	for listed := false; at < len(s); listed = true {
		if strings.IndexByte(", [\t\r\n", s[at]) >= 0 {
			at++
		} else if n, _ := escapedSpace(s[at:min(len(s), at+16)]); listed && n > 0 {
			at += n
		} else {
			break
		}
	}
	if at = quoteAt(s, at); at == len(s) {
		return at, at, at
	}
	if open := openingJoint(s[at:]); open > 0 {
		to, end = jointEnd(s, at, at+open)
		return at + open, to, end
	}
	for end = at; end < len(s) && byteClass[s[end]]&(space|quoteChar|operator) == 0; end++ {
		if n, _ := escapedSpace(s[end:min(len(s), end+16)]); n > 0 {
			break
		}
	}
	if end > at && (end == len(s) || byteClass[s[end]]&quoteChar == 0) {
		return at, end, end
	}
	if open := openingJoint(s[end:]); open > 0 && opensSecret(s[at:end], s[end+open:]) {
		to, next := jointEnd(s, end, end+open)
		return at, to, next
	}
	from, to, end = nextArgument(s, at)
	if n := doubledQuote(s[from:to]); n >= 0 {
		return from, from + n, from + n
	}
	return from, to, end
}

// doubledQuote returns the position of a doubled quote in an argument, or -1, if nothing is glued to it:
// the second one ends the text around the command, as in sh -c "mysql -p"…"".
func doubledQuote(arg string) int {
	for i := 0; i < len(arg); i++ {
		n := strings.IndexByte(arg[i:], '"')
		if n < 0 {
			break
		}
		i += n
		next := i + 1
		for next < len(arg) && arg[next] == '\\' {
			next++
		}
		if next+1 < len(arg) && arg[next] == '"' && byteClass[arg[next+1]]&alnum == 0 {
			return len(strings.TrimRight(arg[:i], `\`))
		}
	}
	return -1
}

// argumentReader returns the argument at a position of a command line, and where it ends. A command
// in a text may be quoted itself, so that its quotes have no sure reading: it is read both as a
// shell reads it (nextArgument) and with every quote as the end of an argument (plainArgument).
type argumentReader func(s string, at int) (from, to, end int)

// plainArgument returns the argument at a position of a command line: what is between two equal
// quotes, or goes up to white space, a quote or an operator of shells.
func plainArgument(s string, at int) (from, to, end int) {
	if at >= len(s) {
		return at, at, at
	}
	if q := s[at]; q == '"' || q == '\'' {
		if n := strings.IndexByte(s[at+1:], q); n >= 0 {
			return at + 1, at + 1 + n, at + 2 + n
		}
		return at + 1, len(s), len(s)
	}
	for end = at; end < len(s) && byteClass[s[end]]&(space|quoteChar|operator) == 0; {
		end++
	}
	return at, end, max(end, at+1) // one further behind a sign that begins no argument
}

// nextArgument returns the argument at a position of a command line without its outer quotes, and
// where it ends. Its last part may be quoted alone: -p'…', bob:'…', "bob":'…'.
func nextArgument(s string, at int) (from, to, end int) {
	if at >= len(s) {
		return at, at, at
	}
	if open := openingQuote(s[at:]); open > 0 && s[at+open-1] != '`' {
		from = at + open
		if to, end = quotedEnd(s, at, from); to < 0 {
			return from, len(s), len(s)
		}
		if end == len(s) || s[end] != ':' && s[end] != '%' {
			return from, to, end
		}
		at = end
	} else {
		from = at
	}
	for end = at; end < len(s) && byteClass[s[end]]&(space|operator) == 0; end++ {
		if s[end] != '\\' && byteClass[s[end]]&quoteChar == 0 {
			continue
		}
		open := openingQuote(s[end:])
		if open == 0 {
			continue
		}
		if opensSecret(s[at:end], s[end+open:]) {
			if to, next := quotedEnd(s, end, end+open); to >= 0 {
				return from, to, next
			}
		}
		break
	}
	if end == at && end == from { // a sign that begins no argument
		end++
		return at, at, end
	}
	return from, end, end
}

// opensSecret reports whether a quote between two parts of a command opens a secret: what is before
// it in its argument is a flag of one letter, or ends as a name before a password does, and what
// is behind it is no end of a command.
func opensSecret(head, rest string) bool {
	if rest = strings.TrimLeft(rest, ";|&)"); rest == "" || byteClass[rest[0]]&space != 0 {
		return false
	}
	head = strings.TrimSuffix(head, "$") // $'…'
	return len(head) == 2 && head[0] == '-' || head != "" && strings.IndexByte(":%,", head[len(head)-1]) >= 0
}

// secretIn reports whether an argument is the password, or holds it from v on. flag is the
// previous argument; words counts the arguments that are no flags, and one that is left out.
func (c *command) secretIn(flag, arg string, words *int) (v int, ok bool) {
	for _, f := range c.passwordFlags {
		if flag == f && arg != "" && arg[0] != '-' {
			return 0, true
		}
	}
	for _, f := range c.userFlags {
		if flag != f {
			continue
		}
		if i := strings.IndexAny(arg, ":%,"); i > 0 && i+1 < len(arg) && !strings.HasPrefix(arg[i:], "://") {
			return i + 1, true
		}
	}
	for _, f := range c.gluedFlags {
		rest, glued := strings.CutPrefix(arg, f)
		if !glued || rest == "" || strings.HasPrefix(arg, "--") {
			continue
		}
		if len(c.userFlags) == 0 {
			return len(f), true
		}
		if i := strings.IndexByte(rest, ':'); i > 0 && i+1 < len(rest) {
			return len(f) + i + 1, true
		}
	}
	if c.omitFirst != "" && strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, c.omitFirst) {
		*words++
	}
	if c.passwordIndex > 0 && arg != "" && arg[0] != '-' && (arg[0] != '/' || !c.slashFlags) {
		if *words++; *words == c.passwordIndex && isUnlikeProse(arg) && arg != "*" {
			return 0, true
		}
	}
	return 0, false
}

// commandItem returns the command that an item of a list of arguments calls, or nil; previous is
// the program before it.
func commandItem(previous, item string) (c *command, base string) {
	if len(item) > 4*maxIdent {
		return nil, ""
	}
	base = programName(item)
	if c = commandNames[base]; c == nil && programs[previous] {
		c = commandNames[previous+" "+base]
	}
	return c, base
}

// argumentState is what redactArguments knows of one command in a list.
type argumentState struct {
	c     *command
	words int
}

// redactArguments returns the indexes of the arguments in a list that are passwords, if it is
// the argument list of a known command. The command is the first item or any other, as behind sudo:
// an item is a password if it is one for the first command in the list or for the last one before it.
func (w *documentWalker) redactArguments(list []any) (done map[int]bool) {
	items := w.program
	w.program = nil
	var first, last argumentState
	flag, previous := "", ""
	for i := -len(items); i < len(list); i++ {
		arg, ok := "", false
		if i < 0 {
			arg, ok = items[len(items)+i], true
		} else {
			arg, ok = list[i].(string)
		}
		if !ok {
			first, last, flag, previous = argumentState{}, argumentState{}, "", ""
			continue
		}
		for _, of := range [...]*argumentState{&first, &last} {
			if of.c == nil {
				continue
			}
			if v, found := of.c.secretIn(flag, arg, &of.words); found && !isHarmlessValue(arg[v:]) && i >= 0 {
				if done == nil {
					done = map[int]bool{}
				}
				done[i] = true
			}
		}
		c, base := commandItem(previous, arg)
		if c != nil {
			if last = (argumentState{c: c}); first.c == nil {
				first = last
			}
		}
		flag, previous = arg, base
	}
	return done
}

// commandKeys and argumentKeys are the members of an object that hold a program and its arguments.
var (
	commandKeys  = []string{"command", "cmd", "program", "executable"}
	argumentKeys = []string{"args", "argv", "arguments"}
)

// programOf returns the words of the program that an object calls with a list of arguments in
// another member, or nil.
func programOf(m map[string]any) (items []string) {
	if !slices.ContainsFunc(argumentKeys, func(k string) bool { _, isList := m[k].([]any); return isList }) {
		return nil
	}
	for _, k := range commandKeys {
		switch v := m[k].(type) {
		case string:
			if len(v) <= 4*maxIdent {
				items = append(items, strings.Fields(v)...)
			}
		case []any:
			for _, item := range v[:min(len(v), maxIdent)] {
				s, _ := item.(string)
				items = append(items, s)
			}
		}
	}
	return items
}

// programs are the first words of the commands.
var programs = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range commands {
		first, _, _ := strings.Cut(c.name, " ")
		m[first] = true
	}
	return m
}()

// programName is the name of a program without its folder and .exe, as in commands.
func programName(path string) string {
	at := strings.LastIndexAny(path, `/\`) + 1
	if name := path[at:]; name != "" && afterEscape(path, at+1) && !programs[name] && programs[name[1:]] { // behind an escaped line break
		at++
	}
	return strings.TrimSuffix(path[at:], ".exe")
}

package redact

import (
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

// commandReach is how much of a command is searched, in bytes.
const commandReach = 512

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
	after, searched := 0, -1
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
		read.arguments = next
		sc.addSpan(from, to, Assignment)
	}
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
	return lastCommand(sc.s[:i], least)
}

// lastCommand finds the last command of the table in s from a position on, and the position of
// its arguments.
func lastCommand(s string, from int) (c *command, after int) {
	previous := ""
	for at := from; at < len(s); {
		at = runEnd(s, at, space|quoteChar)
		end := at
		for end < len(s) && byteClass[s[end]]&(space|quoteChar) == 0 {
			end++
		}
		base := programName(s[at:end])
		if found := commandNames[base]; found != nil {
			c, after = found, end
		} else if found = commandNames[previous+" "+base]; found != nil && previous != "" {
			c, after = found, end
		}
		previous, at = base, end
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
		case ok && !isHarmlessValue(arg[v:]):
			return from + v, to, end
		case ok:
			return 0, 0, end
		}
		want, at = arg, end
	}
	return 0, 0, limit
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
	for end = at; end < len(s) && byteClass[s[end]]&(space|quoteChar) == 0 && strings.IndexByte("|;&<>", s[end]) < 0; {
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
	for end = at; end < len(s) && byteClass[s[end]]&space == 0 && strings.IndexByte("|;&<>", s[end]) < 0; end++ {
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

// commandOf finds the command that a list of arguments calls.
func commandOf(list []any) (c *command, from int) {
	first, ok := list[0].(string)
	if !ok || len(first) > 4*maxIdent {
		return nil, 0
	}
	base := programName(first)
	if c = commandNames[base]; c != nil {
		return c, 1
	}
	if len(list) > 1 {
		if second, ok := list[1].(string); ok && len(second) < maxIdent {
			return commandNames[base+" "+second], 2
		}
	}
	return nil, 0
}

// redactArguments returns the indexes of the arguments in a list that are passwords, if it is
// the argument list of a known command.
func (w *documentWalker) redactArguments(list []any) (done map[int]bool) {
	if len(list) < 2 {
		return nil
	}
	c, from := commandOf(list)
	if c == nil {
		return nil
	}
	flag, words := "", 0
	for i := from; i < len(list); i++ {
		arg, ok := list[i].(string)
		if !ok {
			return done
		}
		if v, found := c.secretIn(flag, arg, &words); found && !isHarmlessValue(arg[v:]) {
			if done == nil {
				done = map[int]bool{}
			}
			done[i] = true
		}
		flag = arg
	}
	return done
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

package redact

import (
	"strings"
)

// command is a program that takes a password as an argument whose name does not say
// so. A password behind --password, or in PGPASSWORD=, is found without.
type command struct {
	name string
	next []string // flags whose next argument is the password
	glue []string // flags that the password is glued to: -psecret
	user []string // flags whose next argument is name:password, or name%password
	word int      // which argument, without flags in front of it, is the password; 0: none
}

var commands = []command{
	{name: "mysql", glue: []string{"-p"}}, {name: "mysqldump", glue: []string{"-p"}}, {name: "mysqladmin", glue: []string{"-p"}},
	{name: "mysqlimport", glue: []string{"-p"}}, {name: "mysqlshow", glue: []string{"-p"}}, {name: "mysqlsh", glue: []string{"-p"}},
	{name: "mariadb", glue: []string{"-p"}}, {name: "mariadb-dump", glue: []string{"-p"}}, {name: "mariadb-admin", glue: []string{"-p"}},
	{name: "curl", user: []string{"-u", "--user", "-U", "--proxy-user"}, glue: []string{"-u"}},
	{name: "sshpass", next: []string{"-p"}, glue: []string{"-p"}},
	{name: "redis-cli", next: []string{"-a", "--pass"}}, {name: "keydb-cli", next: []string{"-a", "--pass"}}, {name: "valkey-cli", next: []string{"-a", "--pass"}},
	{name: "docker login", next: []string{"-p"}}, {name: "podman login", next: []string{"-p"}}, {name: "registry login", next: []string{"-p"}},
	{name: "buildah login", next: []string{"-p"}}, {name: "oc login", next: []string{"-p"}}, {name: "az login", next: []string{"-p"}},
	{name: "net user", word: 2},
	{name: "mongo", next: []string{"-p"}}, {name: "mongosh", next: []string{"-p"}}, {name: "mongodump", next: []string{"-p"}}, {name: "mongorestore", next: []string{"-p"}},
	{name: "smbclient", user: []string{"-U", "--user"}}, {name: "rpcclient", user: []string{"-U"}},
	{name: "ldapsearch", next: []string{"-w"}}, {name: "ldapmodify", next: []string{"-w"}}, {name: "ldapadd", next: []string{"-w"}}, {name: "ldapwhoami", next: []string{"-w"}},
	{name: "unzip", next: []string{"-P"}}, {name: "zip", next: []string{"-P"}}, {name: "7z", glue: []string{"-p"}}, {name: "unrar", glue: []string{"-p"}},
	{name: "sqlcmd", next: []string{"-P"}, glue: []string{"-P"}}, {name: "isql", next: []string{"-P"}, glue: []string{"-P"}},
	{name: "plink", next: []string{"-pw"}}, {name: "pscp", next: []string{"-pw"}}, {name: "psexec", next: []string{"-p"}}, {name: "evil-winrm", next: []string{"-p"}},
	{name: "xfreerdp", glue: []string{"/p:"}}, {name: "ipmitool", next: []string{"-P"}},
	{name: "mosquitto_pub", next: []string{"-P"}}, {name: "mosquitto_sub", next: []string{"-P"}}, {name: "cqlsh", next: []string{"-p"}},
	{name: "clickhouse-client", next: []string{"--password"}}, {name: "openssl", next: []string{"-k"}}, {name: "keytool", next: []string{"-storepass", "-keypass"}},
	{name: "lftp", user: []string{"-u"}},
}

// commandReach is how much of a command is looked at.
const commandReach = 512

var commandNames = func() map[string]*command {
	m := map[string]*command{}
	for i := range commands {
		m[commands[i].name] = &commands[i]
	}
	return m
}()

// netUser is the one command whose password stands behind no flag.
var netUser = rule{detector: Assignment, literals: []string{"net user "}, match: func(s string, start, after int) (from, to, next int) {
	return commandPassword(s, commandNames[s[start:after-1]], after)
}}

// optionLetters begin the flags of commands, behind their dash.
var optionLetters = func() (t [256]bool) {
	for _, c := range commands {
		for _, list := range [...][]string{c.next, c.glue, c.user} {
			for _, flag := range list {
				if flag[0] == '-' && flag[1] != '-' { // flag looks at those with two
					t[flag[1]] = true
				}
			}
		}
	}
	return t
}()

// commandBack is how far in front of a flag its command is looked for.
const commandBack = 256

// option looks at a flag whose dash is at i: is it one of a command that takes a
// password?
func (sc *scanner) option(i int) {
	s := sc.s
	if i < sc.command || i+1 >= len(s) || !optionLetters[s[i+1]] {
		return
	}
	least := max(0, i-commandBack, sc.options)
	if cut := strings.LastIndexAny(s[least:i], "\n|;&"); cut >= 0 {
		least += cut + 1
	}
	sc.options = i
	sc.m.charge(20 + 2*(i-least))
	c, after := lastCommand(s[:i], least)
	if c == nil {
		return
	}
	from, to, next := commandPassword(s, c, after)
	sc.m.charge((next - after) / 2)
	sc.command = next
	sc.add(from, to, Assignment)
}

// lastCommand finds the last command of the table in a part of a text, from a place
// on, and where its arguments begin.
func lastCommand(s string, from int) (c *command, after int) {
	previous := ""
	for at := from; at < len(s); {
		at = run(s, at, space|quoteChar)
		end := at
		for end < len(s) && classOf[s[end]]&(space|quoteChar) == 0 {
			end++
		}
		base := program(s[at:end])
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
func commandPassword(s string, c *command, after int) (from, to, next int) {
	if c == nil {
		return 0, 0, after
	}
	limit := min(len(s), after+commandReach)
	want, words := "", 0
	for at := after; at < limit; {
		at = run(s[:limit], at, space)
		from, to, end := argument(s[:limit], at)
		if end == at || s[at] == '\n' || strings.IndexByte("|;&", s[at]) >= 0 {
			return 0, 0, at
		}
		arg := s[from:to]
		switch v, ok := c.secretIn(want, arg, &words); {
		case ok && !harmless(arg[v:]):
			return from + v, to, end
		case ok:
			return 0, 0, end
		}
		want, at = arg, end
	}
	return 0, 0, limit
}

// argument is what stands at a place of a command line, without its quotes, and
// where it ends.
func argument(s string, at int) (from, to, end int) {
	if at >= len(s) {
		return at, at, at
	}
	if q := s[at]; q == '"' || q == '\'' {
		if n := strings.IndexByte(s[at+1:], q); n >= 0 {
			return at + 1, at + 1 + n, at + 2 + n
		}
		return at + 1, len(s), len(s)
	}
	end = at
	for end < len(s) && classOf[s[end]]&(space|quoteChar) == 0 && strings.IndexByte("|;&<>", s[end]) < 0 {
		end++
	}
	if end == at { // a sign that no argument begins with
		end++
		return at, at, end
	}
	return at, end, end
}

// secretIn reports whether an argument is, or from v on holds, the password; flag is
// the one in front of it, words counts those that are no flags.
func (c *command) secretIn(flag, arg string, words *int) (v int, ok bool) {
	for _, f := range c.next {
		if flag == f && arg != "" && arg[0] != '-' {
			return 0, true
		}
	}
	for _, f := range c.user {
		if flag != f {
			continue
		}
		if i := strings.IndexAny(arg, ":%,"); i > 0 && i+1 < len(arg) && !strings.HasPrefix(arg[i:], "://") {
			return i + 1, true
		}
	}
	for _, f := range c.glue {
		rest, glued := strings.CutPrefix(arg, f)
		if !glued || rest == "" || strings.HasPrefix(arg, "--") {
			continue
		}
		if len(c.user) == 0 {
			return len(f), true
		}
		if i := strings.IndexByte(rest, ':'); i > 0 && i+1 < len(rest) {
			return len(f) + i + 1, true
		}
	}
	if c.word > 0 && arg != "" && arg[0] != '-' && arg[0] != '/' {
		if *words++; *words == c.word && telling(arg) && arg != "*" {
			return 0, true
		}
	}
	return 0, false
}

// commandOf finds the program that a list of arguments calls.
func commandOf(list []any) (c *command, from int) {
	first, ok := list[0].(string)
	if !ok || len(first) > 4*maxIdent {
		return nil, 0
	}
	base := program(first)
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

// arguments redacts a list of arguments, as far as its command says which of them is
// a password, and reports the places of those.
func (w *walker) arguments(list []any) (done map[int]bool) {
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
		if v, found := c.secretIn(flag, arg, &words); found && !harmless(arg[v:]) {
			if done == nil {
				done = map[int]bool{}
			}
			done[i] = true
		}
		flag = arg
	}
	return done
}

// programs are the first words of commands.
var programs = func() map[string]bool {
	m := map[string]bool{}
	for _, c := range commands {
		first, _, _ := strings.Cut(c.name, " ")
		m[first] = true
	}
	return m
}()

// program is the name of a program without its folder, as commands have it.
func program(path string) string {
	return strings.TrimSuffix(path[strings.LastIndexAny(path, `/\`)+1:], ".exe")
}

package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/bench"
	"github.com/countersign-dev/countersign/internal/cli"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/auditor"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/gateway"
)

// Programs are the command lines of all programs.
func Programs() []ui.Program {
	return []ui.Program{
		cli.Program(),
		{Name: admitter.ServiceName, About: admitter.About, Commands: &admitter.Flags{}},
		{Name: "correlator", About: correlator.About, Commands: &correlator.Flags{}},
		{Name: "auditor", About: auditor.About, Commands: &auditor.Flags{}},
		{Name: gateway.ServiceName, About: gateway.About, Commands: &gateway.Flags{}},
		bench.Program(),
	}
}

// sharedFlags are the sets of flags that many commands have: commands.md shows them
// once, below their title.
var sharedFlags = []struct {
	title, about string
	grammar      any
}{
	{"Connection flags", "How a command of `countersign` finds the system.", &target.Flags{}},
	{"Service flags", "All four services have these.", &daemon.Flags{}},
}

// exitCodes are what services and commands end with.
var exitCodes = [][]string{
	{strconv.Itoa(ui.ExitOK), "stopped as asked", "success; `admit`: allow"},
	{strconv.Itoa(ui.ExitFailed), "failed; the log says why", "failed, or something does not hold; `admit`: no verdict, treat it as deny"},
	{strconv.Itoa(ui.ExitUsage), "wrong flags", "wrong flags or input"},
	{strconv.Itoa(ui.ExitPending), "another instance writes for this shard, or may: NATS was away for longer than its lease lasts (3 s)", "`admit`: ask or defer"},
	{strconv.Itoa(ui.ExitDenied), "the log lost messages, or is not the one of the evidence; nothing may write to it", "`admit`: deny"},
	{strconv.Itoa(ui.ExitUnconfirmed), "", "a change is stored, but the named admitters did not confirm it within `--wait`"},
}

// node is a program or command.
type node struct {
	path  string // "countersign policy push"
	help  string
	args  []*kong.Positional
	flags []*kong.Flag // its own and those of the commands above it, but for the program's
	leaf  bool
}

// nodesOf lists a program and its commands, each before its sub-commands.
func nodesOf(p ui.Program) ([]node, error) {
	model, err := p.Model()
	if err != nil {
		return nil, err
	}
	var list []node
	var walk func(n *kong.Node, path string, above []*kong.Flag)
	walk = func(n *kong.Node, path string, above []*kong.Flag) {
		flags := slices.Clone(above)
		for _, f := range n.Flags {
			if f.Name != "help" && !f.Hidden {
				flags = append(flags, f)
			}
		}
		list = append(list, node{path, n.Help, n.Positional, flags, n.Leaf()})
		if n == model.Node {
			flags = nil // every command has them; the program shows them
		}
		for _, c := range n.Children {
			if !c.Hidden {
				walk(c, path+" "+c.Name, flags)
			}
		}
	}
	walk(model.Node, p.Name, nil)
	list[0].help = p.About
	return list, nil
}

// flagsOf lists the flags of a struct.
func flagsOf(grammar any) ([]*kong.Flag, error) {
	list, err := nodesOf(ui.Program{Name: "x", Commands: grammar})
	if err != nil {
		return nil, err
	}
	return list[0].flags, nil
}

// sameFlag reports whether two commands mean the same by a flag.
func sameFlag(a, b *kong.Flag) bool {
	return a.Name == b.Name && a.Help == b.Help && a.Default == b.Default && slices.Equal(a.Envs, b.Envs)
}

// splitShared takes a set of shared flags out of flags, if all of them are there.
func splitShared(flags, shared []*kong.Flag) (rest []*kong.Flag, has bool) {
	for _, s := range shared {
		if !slices.ContainsFunc(flags, func(f *kong.Flag) bool { return sameFlag(f, s) }) {
			return flags, false
		}
	}
	return slices.DeleteFunc(slices.Clone(flags), func(f *kong.Flag) bool {
		return slices.ContainsFunc(shared, func(s *kong.Flag) bool { return sameFlag(f, s) })
	}), true
}

func commands(_ string, p *text) error {
	for _, program := range Programs() {
		nodes, err := nodesOf(program)
		if err != nil {
			return err
		}
		for i, n := range nodes {
			level := "###"
			if i == 0 {
				level = "##"
			}
			if err := p.command(level, n); err != nil {
				return err
			}
		}
	}
	p.line("## Exit codes\n")
	p.table([]string{"code", "services", "`countersign`"}, exitCodes)
	for _, s := range sharedFlags {
		flags, err := flagsOf(s.grammar)
		if err != nil {
			return err
		}
		p.line("## %s\n\n%s\n", s.title, s.about)
		p.flagTable(flags)
	}
	return nil
}

func (p *text) command(level string, n node) error {
	p.line("%s %s\n\n%s\n", level, n.path, n.help)
	if !n.leaf {
		p.flagTable(n.flags)
		return nil
	}
	usage := n.path
	var args [][]string
	for _, a := range n.args {
		usage += " " + a.Summary()
		args = append(args, []string{quoted(a.Name), a.Help})
	}
	p.line("```\n%s [flags]\n```\n", usage)
	flags := n.flags
	for _, s := range sharedFlags {
		shared, err := flagsOf(s.grammar)
		if err != nil {
			return err
		}
		rest, has := splitShared(flags, shared)
		if flags = rest; has {
			p.line("It has the [%s](#%s).\n", strings.ToLower(s.title), strings.ReplaceAll(strings.ToLower(s.title), " ", "-"))
		}
	}
	p.table([]string{"argument", "meaning"}, args)
	p.flagTable(flags)
	return nil
}

func (p *text) flagTable(flags []*kong.Flag) {
	var rows [][]string
	for _, f := range flags {
		rows = append(rows, []string{flagName(f), quoted(f.Envs...), defaultOf(f), meaningOf(f)})
	}
	p.table([]string{"flag", "environment", "default", "meaning"}, rows)
}

func flagName(f *kong.Flag) string {
	name := "--" + f.Name
	if f.Tag.Negatable != "" {
		name = "--[no-]" + f.Name
	}
	if f.PlaceHolder != "" {
		name += "=" + f.PlaceHolder
	}
	if f.Short != 0 {
		return quoted(fmt.Sprintf("-%c", f.Short), name)
	}
	return quoted(name)
}

func defaultOf(f *kong.Flag) string {
	if f.Required && f.Default == "" {
		return "required"
	}
	return quoted(f.Default)
}

// meaningOf is the help text, with the values that the flag takes.
func meaningOf(f *kong.Flag) string {
	values := slices.DeleteFunc(strings.Split(f.Enum, ","), func(v string) bool { return strings.TrimSpace(v) == "" })
	if len(values) == 0 {
		return f.Help
	}
	return cmp.Or(f.Help, "A value of the list.") + " One of " + quoted(values...) + "."
}

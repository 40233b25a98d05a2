package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/internal/cli/run"
)

// setting is a flag that a variable of the environment sets, and what reads it.
type setting struct {
	variable string
	flag     *kong.Flag
	readers  []string
}

// runtimeSettings are the variables that no flag stands for.
var runtimeSettings = [][]string{
	{"`COUNTERSIGN_READY_FILE`", "the ready file, if neither a flag nor, for `hook install`, the gates' configuration says where the gateway is", "`countersign hook install`, `countersign mcp`"},
	{"`GOGC`", "how often the Go runtime collects garbage; replaces the service's own choice", "`admitter`, `correlator`, `auditor`"},
	{"`GOMEMLIMIT`", "the memory limit of the Go runtime; replaces what follows from `--memory-limit`", "`admitter`"},
	{"`XDG_DATA_HOME`", "where the default of `--data-dir` lies; `~/.local/share` if it is not set", "`countersign`"},
	{"`XDG_CONFIG_HOME`", "where the contexts of the `nats` tool lie; `~/.config` if it is not set", "`countersign`"},
	{"`NO_COLOR`", "no colours, whatever its value", "`countersign`"},
}

func settings(_ string, p *text) error {
	list, err := settingsOf()
	if err != nil {
		return err
	}
	p.line("## Environment variables\n\nA flag on the command line wins over its variable.\n")
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{quoted(s.variable), quoted("--" + s.flag.Name), defaultOf(s.flag), s.readBy(), meaningOf(s.flag)})
	}
	p.table([]string{"variable", "flag", "default", "read by", "meaning"}, rows)
	p.line("Without a flag:\n")
	p.table([]string{"variable", "meaning", "read by"}, runtimeSettings)
	return configKeys(p)
}

// settingsOf lists the variables of all programs; what programs mean differently by
// a variable is a setting of its own.
func settingsOf() (list []*setting, err error) {
	for _, program := range Programs() {
		nodes, err := nodesOf(program)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if !n.leaf {
				continue
			}
			for _, f := range n.flags {
				list = addSettings(list, n.path, f)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *setting) int { return cmp.Compare(a.variable, b.variable) })
	return list, nil
}

func addSettings(list []*setting, reader string, f *kong.Flag) []*setting {
	for _, variable := range f.Envs {
		i := slices.IndexFunc(list, func(s *setting) bool { return s.variable == variable && sameFlag(s.flag, f) })
		if i < 0 {
			i = len(list)
			list = append(list, &setting{variable: variable, flag: f})
		}
		list[i].readers = append(list[i].readers, reader)
	}
	return list
}

// manyReaders is how many commands are named; more are counted.
const manyReaders = 6

func (s *setting) readBy() string {
	if len(s.readers) <= manyReaders {
		return quoted(s.readers...)
	}
	var programs []string
	for _, r := range s.readers {
		program, _, _ := strings.Cut(r, " ")
		programs = append(programs, program)
	}
	return fmt.Sprintf("%d commands of %s", len(s.readers), quoted(slices.Compact(programs)...))
}

// configKeys writes the keys of the file that `up --config` reads.
func configKeys(p *text) error {
	flags, err := flagsOf(&run.UpCmd{})
	if err != nil {
		return err
	}
	p.line("## Configuration file\n\n`countersign up --config FILE` reads a YAML file with these keys. A flag, or its variable, wins; an unknown key is an error.\n")
	var rows [][]string
	for _, key := range run.ConfigKeys() {
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == key })
		if i < 0 {
			return fmt.Errorf("the key %s of the configuration file is no flag of up: name it as its flag (internal/cli/run/up.go)", key)
		}
		rows = append(rows, []string{quoted(key), flags[i].Help})
	}
	p.table([]string{"key", "meaning"}, rows)
	return nil
}

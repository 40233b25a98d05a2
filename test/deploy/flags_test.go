package deploy_test

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/countersign-dev/countersign/tools/docgen/reference"
)

// parserOf makes the flag parser of a program.
func parserOf(t testing.TB, program string) *kong.Kong {
	t.Helper()
	for _, p := range reference.Programs() {
		if p.Name == program {
			k, err := kong.New(p.Commands, append([]kong.Option{kong.Name(program), kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard)}, p.Options...)...)
			ok(t, err)
			return k
		}
	}
	t.Fatalf("there is no program %q", program)
	return nil
}

// programEnvs are the variables of the programs, as they were read.
var programEnvs = map[string]map[string]bool{}

// envOf lists the environment variables that a program's flags read. The caller
// must not change the map.
func envOf(t testing.TB, program string) map[string]bool {
	t.Helper()
	if env, known := programEnvs[program]; known {
		return env
	}
	env := map[string]bool{}
	programEnvs[program] = env
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			for _, e := range f.Envs {
				env[e] = true
			}
		}
		for _, c := range n.Children {
			walk(c)
		}
	}
	walk(parserOf(t, program).Model.Node)
	return env
}

// accepts reports whether a program takes a command line, with env set and no
// other variable that it knows.
func accepts(t *testing.T, program string, env map[string]string, args []string) error {
	t.Helper()
	for name := range envOf(t, program) {
		if old, set := os.LookupEnv(name); set {
			t.Cleanup(func() { _ = os.Setenv(name, old) })
			_ = os.Unsetenv(name)
		}
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
	if slices.Contains(args, "--help") { // answered before the rest is looked at
		args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--help" })
		if len(args) == 0 {
			return nil
		}
		c, err := kong.Trace(parserOf(t, program), args)
		if err == nil {
			err = c.Error
		}
		return err
	}
	_, err := parserOf(t, program).Parse(args)
	return err
}

// TestFlagsAreRead: command lines are judged as the programs judge them.
func TestFlagsAreRead(t *testing.T) {
	for _, c := range []struct {
		program string
		args    string
		ok      bool
	}{
		{"admitter", "--max-inflight 5 --inbox-prefix x --http 127.0.0.1:0", true},
		{"admitter", "--no-such-flag", false},
		{"correlator", "--no-verdict-ok", true},
		{"auditor", "--batch 5", false}, // needs --clickhouse
		{"auditor", "--clickhouse x --batch 5", true},
		{"countersign", "admit --protocol aaep -", true},
		{"countersign", "admit -", false},
		{"countersign", "policy lint DIR", true},
		{"countersign", "policy", false},
		{"countersign", "up --nats-port 4222 --http 127.0.0.1:1", true},
		{"countersign", "dance", false},
	} {
		if err := accepts(t, c.program, nil, strings.Fields(c.args)); (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.program, c.args, err)
		}
	}
}

var envName = regexp.MustCompile(`\b(?:COUNTERSIGN|NATS)_[A-Z0-9_]+\b`)

package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Whatever checks against the public checkpoint key finds it in the same variable.
func TestPublicKeyVariable(t *testing.T) {
	model, err := Program().Model()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, c := range model.Leaves(false) {
		for _, f := range c.Flags {
			if !strings.Contains(strings.ToLower(f.Help), "public checkpoint key") {
				continue
			}
			found++
			if !slices.Equal(f.Envs, []string{"COUNTERSIGN_PUBLIC_KEY"}) {
				t.Errorf("%s --%s reads %v", c.Path(), f.Name, f.Envs)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands check against it", found)
	}
}

// wholeGrammar has the same commands, and ui.Program reads all of them because they are embedded.
type wholeGrammar struct{ Commands }

// Commands is exported for kong, which reads no other embedded struct.
type Commands commands

// A command line that names a command is read without the flags of the others. Its help and its
// errors are those of the whole grammar.
func TestOneCommandReadsAsAll(t *testing.T) {
	model, err := Program().Model()
	if err != nil {
		t.Fatal(err)
	}
	say := func(p ui.Program, args ...string) string {
		var out, errs bytes.Buffer
		code := p.Run(t.Context(), args, ui.Stdio{In: strings.NewReader(""), Out: &out, Err: &errs})
		return string(rune('0'+code)) + "\n" + out.String() + errs.String()
	}
	for _, c := range model.Children {
		lines := [][]string{{c.Name, "--help"}, {c.Name, "--hepl"}}
		if len(c.Children) > 0 {
			lines = append(lines, []string{c.Name, c.Children[0].Name, "--help"})
		}
		for _, args := range lines {
			whole := Program()
			whole.Commands = &wholeGrammar{}
			want := say(whole, args...)
			if got := say(Program(), args...); got != want {
				t.Errorf("%q: %s\nwith all commands: %s", args, got, want)
			}
		}
	}
}

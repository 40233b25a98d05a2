package shell

import (
	"strings"
	"testing"
)

// A variable is a number in an arithmetic expression only if no text gives it anything else, before or
// after.
func TestVariablesHoldNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(v *variables)
		known bool
	}{
		"given no value":            {func(*variables) {}, false},
		"given a number":            {func(v *variables) { v.checkNumeric("n") }, true},
		"given a text":              {func(v *variables) { v.checkVariable("n") }, false},
		"given a text, then number": {func(v *variables) { v.checkVariable("n"); v.checkNumeric("n") }, false},
		"given a number, then text": {func(v *variables) { v.checkNumeric("n"); v.checkVariable("n=1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failures{map[string]bool{}}
			v := newVariables(f)
			v.counted["n"] = true
			c.do(v)
			if v.checkCounted(); f.reasons[ReasonHidden] == c.known {
				t.Errorf("reasons %v", f.reasons)
			}
		})
	}
}

func TestVariablesThatChangePrograms(t *testing.T) {
	for name, reason := range map[string]string{
		"n": "", "CI": "", "path": ReasonEnv, "LD_PRELOAD=x": ReasonEnv, Unknown: ReasonEnv, "n[1]=2": "", "n[$(id)]": ReasonHidden, "n[": ReasonHidden,
	} {
		f := &failures{map[string]bool{}}
		newVariables(f).checkVariable(name)
		if len(f.reasons) > 1 || reason != "" && !f.reasons[reason] || reason == "" && len(f.reasons) > 0 {
			t.Errorf("%q: %v, want %q", name, f.reasons, reason)
		}
	}
}

// The list keeps no command beyond its bounds, and says so.
func TestCommandListIsBounded(t *testing.T) {
	long := strings.Repeat("x", 2<<10)
	for name, cmd := range map[string]Command{
		"commands": {}, "words": {Words: strings.Fields(strings.Repeat("a ", 100))}, "bytes": {Words: []string{"a", long, long, long}},
	} {
		l := commandList{failures: &failures{map[string]bool{}}}
		for range maxCommands + 1 {
			l.add(cmd, context{})
		}
		kept := 0
		for _, c := range l.since(0) {
			kept += c.size()
		}
		if !l.isTooLarge() || l.count() > maxCommands || kept > maxBytes {
			t.Errorf("%s: %d commands of %d bytes are kept, too large: %v", name, l.count(), kept, l.isTooLarge())
		}
	}
}

// A directory that may have changed makes the files of the commands from there on unknown.
func TestUnsettledCommands(t *testing.T) {
	l := commandList{failures: &failures{map[string]bool{}}}
	for range 3 {
		l.add(Command{Name: "cat", Words: []string{"cat", "f"}}, context{dirs: []string{"d"}, reads: []string{"d/f"}})
	}
	l.unsettle(1)
	for i, c := range l.since(0) {
		if unsettled := !c.Known && hasUnknown(c.Dirs[0]) && hasUnknown(strings.Join(c.Reads, "")); unsettled != (i > 0) {
			t.Errorf("command %d: %+v", i, c)
		}
	}
	l.markCode()
	if list := l.since(0); list[1].Code || !list[2].Code {
		t.Errorf("%v", list)
	}
}

package functions

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/policy/functions/shell"
	"github.com/countersign-dev/countersign/evidence/secret"
)

// What is too large or too deep is not known, and costs a bounded multiple of its size in memory.
func TestHostileSizes(t *testing.T) {
	const mega = 1 << 20
	long := strings.Repeat("a", mega)
	commands := map[string]string{
		"a megabyte": strings.Repeat("ls -la a;", mega/9), "one word": long, "10,000 pipes": strings.Repeat("a|", 10_000) + "a", "1,000 substitutions": strings.Repeat("$(", 1000) + "ls" + strings.Repeat(")", 1000),
		"1,000 back quotes": strings.Repeat("`ls` ", 1000), "1,000 brackets": strings.Repeat("(", 1000) + "ls" + strings.Repeat(")", 1000), "1,000 shells": strings.Repeat("sh -c '", 1000) + "ls",
		"1,000 evals": strings.Repeat("eval ", 1000) + "ls", "nested braces": strings.Repeat("{a,", 1000) + "b" + strings.Repeat("}", 1000), "wide braces": "ls " + strings.Repeat("{a,b}", 64),
		"a large sequence": "ls {1..1000000000}", "1,000 here-documents": strings.Repeat("cat <<A\n", 1000) + strings.Repeat("A\n", 1000), "1,000 wrappers": strings.Repeat("env ", 1000) + "ls",
		"1,000 functions": strings.Repeat("f() { ", 1000) + "ls;" + strings.Repeat("}; ", 1000), "10,000 redirections": "ls" + strings.Repeat(" >a", 10_000), "10,000 commands": strings.Repeat("ls;", 10_000),
		"expansions": strings.Repeat("${a:-", 1000) + strings.Repeat("}", 1000), "arithmetic": "echo $((" + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + "))",
	}
	for name, text := range commands {
		within(t, name, len(text), func() {
			if s := shell.Parse(text); s.Known && allKnown(s.Commands) {
				t.Errorf("%s: known", name)
			}
		})
	}
	for name, unknown := range map[string]func() bool{
		"a long path":      func() bool { return !Within(long, "/w") && touches(long, "/w") && joinPaths("/w", long) == Unknown },
		"a deep path":      func() bool { return !Within(strings.Repeat("../", mega/3), "/w") },
		"a long address":   func() bool { return !ParseAddress("https://a.example/" + long).Known },
		"a long host":      func() bool { return !hostMatches(long, []string{"*." + long, "a"}) },
		"a long statement": func() bool { return !parseSQL("select " + long).Known },
		"nested selects": func() bool {
			return !parseSQL(strings.Repeat("select (", 10_000) + "1" + strings.Repeat(")", 10_000)).Known
		},
		"a name of many parts": func() bool { return !parseSQL("select from " + strings.Repeat("a.", 30_000) + ";").Known },
		"many statements":      func() bool { return !parseSQL(strings.Repeat("drop table a;", 100_000)).Known },
		"a long patch":         func() bool { return !parsePatch("*** Add File: a\n" + long).Known },
		"a patch of many":      func() bool { return !parsePatch(manyFiles(2 * maxPatchFiles)).Known },
		"many words":           func() bool { return !parseView(strings.Fields(strings.Repeat("git -c a=b ", 20_000))).Known },
		"a text for secrets":   func() bool { return secret.Found(long) }, // what is too long to be searched may hold one
	} {
		within(t, name, mega, func() {
			if !unknown() {
				t.Errorf("%s: known", name)
			}
		})
	}
}

func manyFiles(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "*** Add File: f%d\n", i)
	}
	return b.String()
}

func allKnown(list []shell.Command) bool {
	for _, c := range list {
		if !c.Known {
			return false
		}
	}
	return true
}

// within fails if a call allocates more than a multiple of the size of what it is given.
func within(t *testing.T, name string, size int, call func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(200*size+8<<20) && !underRaceDetector() {
		t.Errorf("%s of %d bytes: %d bytes allocated", name, size, n)
	}
}

// underRaceDetector reports whether this is a build with the race detector, under which a sync.Pool forgets at random.
func underRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

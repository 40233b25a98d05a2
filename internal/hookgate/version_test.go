package hookgate

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The version of an agent is that of the package whose program, or script, started the gate: in any of a few shells,
// and never that of another package.
func TestPackageVersion(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) string {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	native := put("codex-linux-x64/vendor/x/bin/codex", "")
	put("codex-linux-x64/package.json", `{"name":"@openai/codex","version":"0.169.0-linux-x64"}`)
	script := put("gemini-cli/bundle/gemini.js", "")
	put("gemini-cli/package.json", `{"name":"@google/gemini-cli","version":"0.61.0"}`)
	link := filepath.Join(dir, "gemini")
	if err := os.Symlink(script, link); err != nil {
		t.Fatal(err)
	}
	built := put("opencode-linux-x64/bin/opencode", "")
	put("opencode-linux-x64/package.json", `{"name":"opencode-linux-x64","version":"1.18.33"}`)
	inside := put("codex-linux-x64/node_modules/other/bin/x", "") // a program of another package, in a folder of this one
	put("codex-linux-x64/node_modules/other/package.json", `{"name":"other","version":"9"}`)
	long := put("long/bin/codex", "")
	put("long/package.json", `{"name":"@openai/codex","version":"`+strings.Repeat("1", maxVersion+1)+`"}`)
	broken := put("broken/bin/codex", "")
	put("broken/package.json", `{"name":"@openai/codex"`)

	for name, tt := range map[string]struct {
		exe, arguments, of, want string
		shells                   int
	}{
		"a program":                  {native, native, "@openai/codex", "0.169.0", 0},
		"behind shells":              {native, native, "@openai/codex", "0.169.0", 2},
		"behind too many":            {native, native, "@openai/codex", "", maxAncestors},
		"a script":                   {"/usr/bin/node", "node\x00--flag\x00" + script + "\x00-p\x00hello", "@google/gemini-cli", "0.61.0", 1},
		"a script behind a link":     {"/usr/bin/node", "node\x00" + link, "@google/gemini-cli", "0.61.0", 1},
		"a build for a platform":     {built, "opencode", "opencode", "1.18.33", 1},
		"another package":            {inside, "x", "@openai/codex", "", 0},
		"another agent":              {native, native, "@google/gemini-cli", "", 0},
		"a name that only begins so": {built, "opencode", "open", "", 0},
		"a file that is no JSON":     {broken, "codex", "@openai/codex", "", 0},
		"a version without end":      {long, "codex", "@openai/codex", "", 0},
		"no package":                 {"/usr/bin/node", "node\x00relative.js", "@openai/codex", "", 0},
	} {
		proc := t.TempDir()
		process := func(pid, parent int, exe, arguments string) {
			t.Helper()
			home := filepath.Join(proc, strconv.Itoa(pid))
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"cmdline": arguments, "stat": strconv.Itoa(pid) + " (a) b) S " + strconv.Itoa(parent) + " 1 1"} {
				if err := os.WriteFile(filepath.Join(home, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(exe, filepath.Join(home, "exe")); err != nil {
				t.Fatal(err)
			}
		}
		pid := 100
		for range tt.shells {
			process(pid, pid+1, "/bin/sh", "/bin/sh\x00-c\x00x")
			pid++
		}
		process(pid, 1, tt.exe, tt.arguments)
		if got := packageVersion(proc, 100, tt.of); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := packageVersion("/proc", os.Getpid(), "@openai/codex"); got != "" {
		t.Errorf("of a test: %q", got)
	}
}

package protocol_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
)

// A new token needs no line here: its folder may name it, generic code may not.
func TestNamesOfEveryProtocol(t *testing.T) {
	for _, token := range subject.Protocols {
		if isWord(token) {
			continue
		}
		if !slices.Contains(folders, token) {
			t.Errorf("the folder of %s is no protocol's", token)
		}
		for _, what := range []string{`import _ "example.org/admission/` + token + `"`, "var my_" + token + "Protocol int", `var token = "` + token + `"`} {
			if found := foundIn(t, what); len(found) != 1 {
				t.Errorf("%s: found %q", what, found)
			}
		}
	}
}

// Two tokens are words that any code may write; the name of their constants and of their folder it may not.
func TestNamesOfWords(t *testing.T) {
	for what, want := range map[string]int{
		`var tool = "handoff"`: 0, "var x = ProtoTool": 1, "var proto_handoff int": 1, `import _ "example.org/admission/aioc"`: 1, "var Agent_Hook int": 1,
	} {
		if found := foundIn(t, what); len(found) != want {
			t.Errorf("%s: found %q", what, found)
		}
	}
}

func foundIn(t *testing.T, code string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte("package x\n\n"+code+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return namesIn(t, file)
}

package deploy_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/daemon"
)

// TestHealthTable: every component that a service can be unhealthy for is in
// daemon.Components, and none besides.
func TestHealthTable(t *testing.T) {
	want := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:(?:[hH]ealth|\bh)\.[sS]et\(|\.poll\(ctx, )"([a-z_]+)"`).FindAllStringSubmatch(sourceOf(t, "internal"), -1) {
		want[m[1]] = true
	}
	source := sourceOf(t, "internal/service/admitter", "internal/service/gateway", "internal/pipeline", "streams", "events")
	for name, part := range map[string]string{
		"policies_watch": `BucketPolicies, p`, "mandates_watch": `BucketMandates, p`, "publishers_watch": `BucketPublishers, p`, "spend_watch": `BucketSpend, 0`, "approvals_watch": `BucketApprovals,`, "keys_watch": `BucketKeys, 0`,
		"policy_log": `ControlPolicy `, "mandate_log": `ControlMandate `, "publisher_log": `ControlPublisher `, "process": `"process"`, "outputs": `env, "outputs"`, "tokens": `name: "tokens"`, "keys": `name: "keys"`, "events": `env, "events"`,
	} {
		if !strings.Contains(source, part) {
			t.Errorf("nothing is there any more that %s comes from", name)
		}
		want[name] = true
	}
	for _, c := range daemon.Components() {
		if !want[c.Name] {
			t.Errorf("nothing is unhealthy for %q", c.Name)
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("daemon.Components leaves out %q", slices.Sorted(maps.Keys(want)))
	}
}

// TestCodesInDocs: reason codes, rules and problem codes that a page names
// occur in the code as such.
func TestCodesInDocs(t *testing.T) {
	source := sourceOf(t, "admission", "client", "cmd", "internal", "correlation", "events", "evidence")
	for _, table := range []struct {
		file, head string
		column     int
	}{
		{"docs/approvals.md", "| reason | do |", 0},
		{"docs/redaction.md", "| finding | severity | when |", 0},
		{"docs/runtimes/README.md", "| reason | do |", 0},
	} {
		for _, row := range rows(t, table.file, table.head) {
			for _, c := range codes(row[table.column]) {
				if !strings.Contains(source, strconv.Quote(c)) {
					t.Errorf("%s: no code %s", table.file, c)
				}
			}
		}
	}
}

// sourceOf is all Go source below the folders, tests left out.
func sourceOf(t *testing.T, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		ok(t, filepath.WalkDir(path(dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			b.Write(text)
			return err
		}))
	}
	return b.String()
}

// TestTestsInDocs: the tests that the pages on security name are there, and in the file of their link. A
// name that ends in … stands for all that begin like it.
func TestTestsInDocs(t *testing.T) {
	var all strings.Builder
	for _, dir := range []string{"admission", "client", "cmd", "compliance", "correlation", "events", "evidence", "gateway", "hook", "internal", "storage", "streams", "test"} {
		ok(t, filepath.WalkDir(path(dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			all.Write(text)
			return err
		}))
	}
	seen := 0
	pages := read(t, "docs/security.md") + read(t, "docs/security-tests.md")
	for _, m := range regexp.MustCompile("`(Test[^`]+)`(?:\\]\\(\\.\\./([^)]+_test\\.go)\\))?").FindAllStringSubmatch(pages, -1) {
		name, source := m[1], all.String()
		seen++
		if m[2] != "" {
			source = read(t, m[2])
		}
		want := "\nfunc " + name + "("
		if prefix, some := strings.CutSuffix(name, "…"); some {
			want = "\nfunc " + prefix
		}
		if !strings.Contains(source, want) {
			t.Errorf("the pages on security: there is no test %s (%s)", name, m[2])
		}
	}
	if seen < 150 {
		t.Errorf("only %d tests were found", seen)
	}
}

// TestSubjectsInDocs: every subject that a page names is of a class that there is.
func TestSubjectsInDocs(t *testing.T) {
	class := regexp.MustCompile(`\bgov\.([a-z]+)\.`)
	for _, page := range ours {
		for _, m := range class.FindAllStringSubmatch(read(t, page), -1) {
			if !slices.Contains(subject.Classes, subject.Class(m[1])) {
				t.Errorf("%s: no class %s", page, m[1])
			}
		}
	}
}

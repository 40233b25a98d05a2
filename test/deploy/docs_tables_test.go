package deploy_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// TestHealthTable: every component that a service can be unhealthy for is in the
// table, and none besides.
func TestHealthTable(t *testing.T) {
	want := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:[hH]ealth|\bh)\.Set\("([a-z_]+)"`).FindAllStringSubmatch(sourceOf(t, "internal"), -1) {
		want[m[1]] = true
	}
	source := sourceOf(t, "internal/service/admitter", "internal/service/gateway", "internal/pipeline", "streams", "events")
	for name, part := range map[string]string{
		"policies_watch": `BucketPolicies `, "mandates_watch": `BucketMandates `, "publishers_watch": `BucketPublishers `, "spend_watch": `BucketSpend `,
		"policy_log": `ControlPolicy `, "mandate_log": `ControlMandate `, "publisher_log": `ControlPublisher `, "process": `"process"`, "outputs": `name: "outputs"`, "tokens": `name: "tokens"`, "keys": `name: "keys"`, "aaep_events": `"aaep_events"`,
	} {
		if !strings.Contains(source, part) {
			t.Errorf("nothing is there any more that %s comes from", name)
		}
		want[name] = true
	}
	for _, row := range rows(t, "docs/operating.md", "| component | of | unhealthy when |") {
		for _, name := range codes(row[0]) {
			if there := want[name]; !there && name != "log" { // of two services
				t.Errorf("nothing is unhealthy for %q", name)
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("the page leaves out %q", slices.Sorted(maps.Keys(want)))
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
		{"docs/operating.md", "| rule | severity | do |", 0},
		{"docs/approvals.md", "| reason | do |", 0},
		{"docs/redaction.md", "| finding | severity | when |", 0},
		{"docs/publishers.md", "| denied | when |", 0},
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

// TestRecordsInDocs: every example is a record of its type, and shows every
// member that a record always has.
func TestRecordsInDocs(t *testing.T) {
	decode := map[string]func([]byte) (any, error){
		"decision": decoder[events.Decision], "call": decoder[events.Call], "finding": decoder[events.Finding], "approval": decoder[events.Approval],
		"cursor": decoder[events.Cursor], "tick": decoder[events.Tick], "policy": decoder[events.PolicyChange], "key": decoder[events.KeyRecord],
		"rules": decoder[events.RulesChange], "publisher": decoder[events.PublisherChange],
		"receipt": decoder[receipt.Claims],
	}
	for _, b := range blocks(t, "docs/architecture.md") {
		kind, isRecord := strings.CutPrefix(b.info, "json ")
		if !isRecord {
			continue
		}
		read, known := decode[kind]
		if !known {
			t.Errorf("%s:%d: no kind of record %q", b.file, b.line, kind)
			continue
		}
		delete(decode, kind)
		record, err := read([]byte(b.text))
		if err != nil {
			t.Errorf("%s:%d: no %s: %v", b.file, b.line, kind, err)
			continue
		}
		var shown map[string]any
		ok(t, json.Unmarshal([]byte(b.text), &shown))
		for i := range reflect.TypeOf(record).NumField() {
			name, options, _ := strings.Cut(reflect.TypeOf(record).Field(i).Tag.Get("json"), ",")
			if _, there := shown[name]; !there && !strings.Contains(options, "omit") {
				t.Errorf("%s:%d: a %s always has %s", b.file, b.line, kind, name)
			}
		}
	}
	if len(decode) > 0 {
		t.Errorf("no example of %q", slices.Sorted(maps.Keys(decode)))
	}
}

func decoder[T any](b []byte) (any, error) { return events.DecodeRecord[T](b) }

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

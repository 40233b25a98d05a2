package format_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// howMany lines everything makes.
var howMany = map[string]int{
	format.AANADecisionEvents: 4, format.AANAAuditRecords: 4, format.AUMPEvidence: 4, format.AgentHookEvidence: 4,
	format.AIOCGovernance: 9, format.AIOCRun: 2, format.OCSF: 20 + 5 + 1 + 2, format.CEF: 20 + 5 + 1 + 2,
}

// Every line satisfies its schema, nothing that evidence redacts is in it, and
// the same evidence gives the same bytes.
func TestLines(t *testing.T) {
	items := everything(t)
	for _, name := range format.Names() {
		t.Run(name, func(t *testing.T) {
			lines, sum := written(t, name, items, keeps("hashes"))
			if len(lines) != howMany[name] || sum.Lines != uint64(len(lines)) || len(sum.Skipped) > 0 || sum.Records != uint64(len(items)) {
				t.Errorf("%d lines, want %d; %+v", len(lines), howMany[name], sum)
			}
			for _, line := range lines {
				if bytes.ContainsAny(line, "\n\r") {
					t.Errorf("a line break in %q", line)
				}
				for _, secret := range planted {
					if bytes.Contains(line, []byte(secret)) {
						t.Errorf("%q is in %s", secret, line)
					}
				}
				judge(t, name, line)
			}
			again, _ := written(t, name, items, keeps("hashes"))
			if !slices.EqualFunc(lines, again, bytes.Equal) {
				t.Error("another run wrote other bytes")
			}
		})
	}
}

// lineSchemas are our schemas of a line, but for those of package schemas. CEF is not JSON.
var lineSchemas = map[string]string{
	format.AANADecisionEvents: "aana-decision-event", format.AANAAuditRecords: "aana-audit-record", format.AIOCRun: "aioc-run-record",
	format.AIOCGovernance: "aioc-governance-event", format.OCSF: "ocsf-event",
}

// judge validates a line by our schema for it.
func judge(t *testing.T, name string, line []byte) {
	t.Helper()
	if file, has := lineSchemas[name]; has {
		text, err := os.ReadFile(filepath.Join("schemas", file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled(t, name, text).Validate(loose(t, line)); err != nil {
			t.Errorf("%s: %#v", line, err)
		}
	}
	switch name {
	case format.AUMPEvidence:
		if vs := schemas.Default().Validate("aump/evidence-event", strictjson.FromTree(bodyObject(t, line))); len(vs) > 0 {
			t.Errorf("%s: %v", line, vs)
		}
	case format.AgentHookEvidence:
		if vs := hookschema.Strict(strictjson.FromTree(bodyObject(t, line))); len(vs) > 0 {
			t.Errorf("%s: %v", line, vs)
		}
		if vs := hookschema.ValidateProfile(strictjson.FromTree(bodyObject(t, line)), hookschema.FormEvidence); len(vs) > 0 {
			t.Errorf("%s: %v", line, vs)
		}
	}
}

// What upstream publishes as a schema accepts the lines as well.
func TestUpstreamSchemas(t *testing.T) {
	shared := os.Getenv("COUNTERSIGN_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "..", "shared")
	}
	items := everything(t)
	for name, files := range map[string][]string{
		format.AUMPEvidence:      {"aump/schemas/evidence-event.schema.json", "aump/conformance/schemas/evidence-event.schema.json"},
		format.AgentHookEvidence: {"agenthook/envelope.schema.json", "agenthook/action-governance-profile.schema.json"},
	} {
		for _, file := range files {
			t.Run(file, func(t *testing.T) {
				text, err := os.ReadFile(filepath.Join(shared, "upstream", file))
				if err != nil {
					t.Skipf("the published schemas are not here (%v); set COUNTERSIGN_SHARED to the folder that holds upstream/", err)
				}
				s := compiled(t, filepath.Base(file), text)
				lines, _ := written(t, name, items, keeps("hashes"))
				for _, line := range lines {
					if err := s.Validate(loose(t, line)); err != nil {
						t.Errorf("%s: %v", line, err)
					}
				}
			})
		}
	}
}

// A run record has the members that upstream's own have, of the same types,
// wherever it has a value.
func TestUpstreamRunRecords(t *testing.T) {
	shared := os.Getenv("COUNTERSIGN_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "..", "shared")
	}
	files, _ := filepath.Glob(filepath.Join(shared, "upstream", "aioc", "run-records", "*-*.json"))
	if len(files) == 0 {
		t.Skip("the published run records are not here; set COUNTERSIGN_SHARED to the folder that holds upstream/")
	}
	lines, _ := written(t, format.AIOCRun, everything(t), nil)
	for _, file := range files {
		text, err := os.ReadFile(file)
		ok(t, err)
		theirs, _ := loose(t, text).(map[string]any)
		for _, line := range lines {
			ours := loose(t, line).(map[string]any)
			for member, v := range theirs {
				mine, has := ours[member]
				optional := slices.Contains([]string{"providerName", "model", "suspendedProposals", "guardrailDecisions", "errorName", "errorMessage", "inputItemCount"}, member)
				switch {
				case !has && !optional:
					t.Errorf("%s: no member %s", filepath.Base(file), member)
				case has && mine != nil && fmt.Sprintf("%T", mine) != fmt.Sprintf("%T", v):
					t.Errorf("%s: %s is %T, not %T", filepath.Base(file), member, mine, v)
				}
			}
		}
	}
}

package correlate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// A manifest's declarations apply only to its own publisher.
func TestDeclaredExcuses(t *testing.T) {
	manifest := func(id, source, differs string) publisher.Document {
		events := map[string]string{}
		for _, typ := range []string{"SessionStart", "UserPromptSubmit", "PreLLMCall", "PostLLMCall", "PreToolUse", "PostToolUse", "ModelResponse", "SessionEnd", "AgentHandoff", "ErrorOccurred"} {
			events[typ] = publisher.Supported
		}
		servicetest.OK(t, json.Unmarshal([]byte(differs), &events))
		list, err := json.Marshal(events)
		servicetest.OK(t, err)
		return document(t, fmt.Sprintf(`{"schema":"https://agenthook.org/schemas/publisher-manifest.v1.json","schema_version":"1.0","publisher_id":%q,"display_name":"Desk",
			"maintainer":{"name":"Example","url":"https://example.org"},"runtime":{"vendor":"Example","name":"desk","versions_tested":["1"]},
			"agenthook":{"version":"0.2","source":%q,"events":%s},"entrypoints":{"command":"desk","installer":"none"},"config":{"files":["desk.toml"]},"limitations":["none"],
			"verification":{"self_attested":true,"conformance":"not_claimed","last_tested":"2026-11-20","commands":["true"]}}`, id, source, list))
	}
	desk := manifest("desk", "desk-runtime", `{"AgentHandoff":"not_exposed","PreLLMCall":"planned"}`)
	registered := func(name string, m publisher.Document) publisher.Document {
		return document(t, fmt.Sprintf(`{"schema":"https://schemas.countersign.dev/countersign/publisher-registration/v1","publisher":%q,"fail_mode":"fail_closed","manifest":%s}`, name, m.Data))
	}
	for _, tt := range []struct {
		name, source string
		docs         []publisher.Document
		want         []string
	}{
		{"nothing declared", "desk", nil, []string{"GoalSet"}},
		{"by its id", "desk", []publisher.Document{desk}, []string{"AgentHandoff", "GoalSet", "PreLLMCall"}},
		{"by its source", "desk-runtime", []publisher.Document{desk}, []string{"AgentHandoff", "GoalSet", "PreLLMCall"}},
		{"another publisher", "stranger", []publisher.Document{desk}, []string{"GoalSet"}},
		{"by a registration", "rt1", []publisher.Document{registered("rt1", desk)}, []string{"AgentHandoff", "GoalSet", "PreLLMCall"}},
		{"by somebody else's registration", "desk", []publisher.Document{registered("rt1", desk)}, []string{"GoalSet"}},
		{"the registration counts, not the manifest of its name", "desk", []publisher.Document{desk, registered("desk", manifest("other", "other", `{"PreLLMCall":"not_exposed"}`))},
			[]string{"GoalSet", "PreLLMCall"}},
		{"another runtime exposes it", "desk", []publisher.Document{desk, manifest("other", "desk", `{"PreLLMCall":"not_exposed"}`)}, []string{"GoalSet", "PreLLMCall"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := excuses{all: map[string]bool{"GoalSet": true}, manifests: manifestsOf(tt.docs)}
			servicetest.OK(t, publisher.Compile(tt.docs, 0).Err())
			if got := slices.Sorted(maps.Keys(x.of(tt.source))); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if len(x.all) != 1 {
				t.Error("what counts for all was changed")
			}
		})
	}
}

func document(t *testing.T, text string) publisher.Document {
	t.Helper()
	p, err := publisher.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return publisher.Document{Tenant: "acme", Name: p.Name, Data: []byte(text)}
}

package publisher

import (
	"encoding/json"
	"strings"
	"testing"
)

type obj = map[string]any

type list = []any

func text(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tools(t testing.TB, name string, tools ...obj) Document {
	t.Helper()
	data := text(t, obj{"schema": toolsSchema, "name": name, "tools": tools})
	return Document{Tenant: "acme", Name: KindTools + "." + name, Data: data, Revision: 1}
}

func manifestOf(id, source string, set obj) obj {
	types := obj{}
	for _, e := range strings.Fields("SessionStart SessionEnd UserPromptSubmit PreLLMCall PostLLMCall ModelResponse PreToolUse PostToolUse AgentHandoff ErrorOccurred") {
		types[e] = Supported
	}
	types["PreLLMCall"], types["AgentHandoff"], types["ModelResponse"] = NotExposed, Planned, Partial
	m := obj{
		"schema": manifestSchema, "schema_version": "1.0", "publisher_id": id, "display_name": "Test",
		"maintainer": obj{"name": "T", "url": "https://t.example"}, "runtime": obj{"vendor": "T", "name": "T", "versions_tested": list{}},
		"agenthook":   obj{"version": "0.2", "source": source, "events": types},
		"entrypoints": obj{"command": "c", "installer": "i"}, "config": obj{"files": list{}}, "limitations": list{"Sees Bash only."},
		"verification": obj{"self_attested": true, "conformance": "pending", "last_tested": "2026-11-20", "commands": list{}},
	}
	for k, v := range set {
		m[k] = v
	}
	return m
}

func manifest(t testing.TB, id, source string) Document {
	t.Helper()
	return Document{Tenant: "acme", Name: KindManifest + "." + id, Data: text(t, manifestOf(id, source, nil)), Revision: 1}
}

func registration(t testing.TB, publisher, id, source string, set obj) Document {
	t.Helper()
	m := obj{"schema": RegistrationSchema, "publisher": publisher, "manifest": manifestOf(id, source, nil)}
	for k, v := range set {
		m[k] = v
	}
	return Document{Tenant: "acme", Name: KindRegistration + "." + keyToken(publisher) + "." + id, Data: text(t, m), Revision: 1}
}

// set compiles documents that must be usable.
func set(t testing.TB, docs ...Document) *Set {
	t.Helper()
	s := Compile(docs, 7)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

const digits = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"

// mail is a catalogue with everything in it.
func mail(t testing.TB) *Set {
	t.Helper()
	return set(t, tools(t, "mail",
		obj{"name": "email.send_message", "category": "write", "risk": "external_side_effect", "schema_hashes": list{"sha256:" + strings.ToUpper(digits)},
			"aliases": list{"send_mail", "sendMail", obj{"name": "Send", "publisher": "rt1"}}},
		obj{"name": "email.pay_invoice", "requires": list{"mandate", "contract", "schema_hash"}, "category": "write",
			"mandate": obj{"action": "place_order", "total_minor": "/total/minor", "currency": "/total/currency"}},
		obj{"name": "email.list_messages", "category": "private_read", "risk": "sensitive_read"},
		obj{"name": "email.purge"},
	))
}

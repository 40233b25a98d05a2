package e2e_test

import (
	"bytes"
	"strings"
)

const (
	mib        = 1 << 20
	maxPayload = 5 * mib / 4 // of a tenant's user
)

// bent is an event whose JSON text is changed in a way that no JSON encoder produces.
func bent(e object, old, changed string) []byte {
	b := bytes.Replace(e.bytes(), []byte(old), []byte(changed), 1)
	if bytes.Equal(b, e.bytes()) {
		panic("nothing to bend: " + old)
	}
	return b
}

func nested(depth int) (v any) {
	for v = 1; depth > 0; depth-- {
		v = []any{v}
	}
	return v
}

// sized is an event of exactly so many bytes.
func sized(e object, n int) []byte {
	e = e.with("tool_input.content", "")
	return bent(e, `"content":""`, `"content":"`+strings.Repeat("x", n-len(e.bytes()))+`"`)
}

// malformed are bodies that are not right for AgentHook. parses tells whether
// the body can be kept as JSON in the evidence.
var malformed = []struct {
	name   string
	code   string // the reason in the refusal
	parses bool
	body   func(good object) []byte
}{
	{"empty", "not_json", false, func(object) []byte { return nil }},
	{"garbage", "invalid_utf8", false, func(object) []byte { return []byte{0, 0xff, 0x17, 0xfe, '{'} }},
	{"text", "not_json", false, func(object) []byte { return []byte("DROP TABLE evidence; --") }},
	{"cut off", "not_json", false, func(g object) []byte { return g.bytes()[:100] }},
	{"trailing data", "trailing_data", false, func(g object) []byte { return append(g.bytes(), "{}"...) }},
	{"an array", "not_object", true, func(object) []byte { return []byte("[1,2]") }},
	{"null", "not_object", true, func(object) []byte { return []byte("null") }},
	{"duplicate key", "duplicate_key", false, func(g object) []byte { return bent(g, `"tool_name":`, `"tool_name":"read_file","tool_name":`) }},
	{"keys that differ in case", "case_collision", false, func(g object) []byte { return bent(g, `"tool_name":`, `"Tool_Name":"read_file","tool_name":`) }},
	{"invalid UTF-8", "invalid_utf8", false, func(g object) []byte { return bent(g, "marker", "\xff\xfe") }},
	{"half a surrogate pair", "invalid_utf8", false, func(g object) []byte { return bent(g, "marker", `\ud800`) }},
	{"integer beyond 2^53", "unsafe_integer", false, func(g object) []byte { return bent(g, `"schema_version":1`, `"schema_version":9007199254740993`) }},
	{"too deep", "too_deep", false, func(g object) []byte { return g.with("tool_input.deep", nested(80)).bytes() }},
	{"over 1 MiB", "too_large", false, func(g object) []byte { return sized(g, mib+1) }},
	{"close to what a tenant may send", "too_large", false, func(g object) []byte { return sized(g, maxPayload-1024) }},
	{"wrong type of tool_input", "schema_invalid", true, func(g object) []byte { return g.with("tool_input", "rm -rf /").bytes() }},
	{"wrong type of tool_name", "schema_invalid", true, func(g object) []byte { return g.with("tool_name", 7).bytes() }},
	{"wrong type of metadata", "schema_invalid", true, func(g object) []byte { return g.with("metadata", []int{1}).bytes() }},
	{"unknown key", "schema_invalid", true, func(g object) []byte { return g.with("surprise", 1).bytes() }},
	{"unknown schema version", "unknown_schema_version", true, func(g object) []byte { return g.with("schema_version", 99).bytes() }},
	{"no event id", "schema_invalid", true, func(g object) []byte { return g.with("event_id", nil).bytes() }},
	{"an event id that is no UUID", "schema_invalid", true, func(g object) []byte { return g.with("event_id", "1").bytes() }},
	{"no tool", "missing_tool_name", true, func(g object) []byte { return g.with("tool_name", nil).bytes() }},
	{"no time", "schema_invalid", true, func(g object) []byte { return g.with("timestamp", "yesterday").bytes() }},
	{"wrong type of session", "schema_invalid", true, func(g object) []byte { return g.with("session_id", 7).bytes() }},
}

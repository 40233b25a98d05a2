package schemas

import (
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// PassesAgentHook reports that StrictAgentHook finds nothing at all in a document
// that was read flat. That it does not report so says nothing (FuzzPasses).
func (r *Registry) PassesAgentHook(v strictjson.Value) bool {
	return r.entries[agentHookEnvelope].root.passes(v) && plainAgentHook(v)
}

// PassesAgentHookProfile reports that AgentHookProfile finds nothing in an event
// on the log, or does not speak of it: it is of another type or has no block of
// AHP-013.
func (r *Registry) PassesAgentHookProfile(v strictjson.Value) bool {
	if !ProfileCovers(v.Get("event_type").Text()) || !governed(v.Get("metadata")) {
		return true
	}
	return r.entries[agentHookProfile+string(FormEvidence)].root.passes(v)
}

// governed tells whether metadata have a block of AHP-013.
func governed(metadata strictjson.Value) bool {
	for m := range metadata.All() {
		switch m.Key() {
		case "tool_identity", "provider_translation", "risk", "validation", "redaction", "retry", "execution":
			return true
		}
	}
	return false
}

// PassesAAEP is the same for StrictAAEP.
func (r *Registry) PassesAAEP(v strictjson.Value) bool {
	kind := v.Get("type").Text()
	e, core := r.entries[r.cores[kind]]
	return core && plainAAEP(v, kind, e.plain) && e.root.passes(v)
}

// plainAgentHook reports that none of agentHookRules can have anything to say.
func plainAgentHook(v strictjson.Value) bool {
	kind, source := v.Get("event_type").Text(), v.Get("source").Text()
	if !strings.HasSuffix(v.Get("timestamp").Text(), "Z") || source == "" || strings.ContainsFunc(source, notInSource) {
		return false
	}
	if version := v.Get("schema_version"); version.There() && version.Text() != "1" {
		return false
	}
	if (kind == "PreToolUse" || kind == "PostToolUse") && v.Get("tool_name").Text() == "" {
		return false
	}
	return kind == "PreToolUse" || v.Get("evidence_phase").Text() != "pre_commit"
}

func notInSource(r rune) bool {
	return r >= utf8.RuneSelf || !asciiClass(r, "_.:-")
}

func asciiClass(r rune, more string) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune(more, r)
}

// plainAAEP reports that none of aaepRules can have anything to say about a core
// event.
func plainAAEP(v strictjson.Value, kind string, fields *strictjson.Names[bool]) bool {
	switch kind {
	case "aaep:agent.awaiting.confirmation", "aaep:agent.awaiting.clarification", "aaep:agent.progress.updated",
		"aaep:agent.session.errored", "aaep:agent.handoff.requested":
		return false
	}
	// 3 or 6 digits of a fraction, and UTC.
	stamp := v.Get("timestamp").Text()
	if (len(stamp) != 24 && len(stamp) != 27) || stamp[19] != '.' || stamp[len(stamp)-1] != 'Z' {
		return false
	}
	if version := v.Get("aaep_version"); version.There() && version.Text() != "1.0.0" {
		return false
	}
	for m := range v.All() {
		if _, plain := fields.Of(m); !plain {
			return false
		}
	}
	return true
}

func plainFields(fields map[string]bool) *strictjson.Names[bool] {
	plain := maps.Clone(fields)
	maps.DeleteFunc(plain, func(key string, _ bool) bool { return key == "extensions" || reservedField(key) })
	return strictjson.NamesOf(plain)
}

// passes is eval for a document that was read flat. A value that does not pass is
// judged anew as a tree.
func (n *node) passes(v strictjson.Value) bool {
	if n.kinds != 0 && !n.kinds.hasFlat(v) {
		return false
	}
	for _, k := range n.keywords {
		if !k.passes(v) {
			return false
		}
	}
	return true
}

var flatKinds = [256]kind{strictjson.KindObject: kindObject, strictjson.KindArray: kindArray, strictjson.KindString: kindString,
	strictjson.KindTrue: kindBoolean, strictjson.KindFalse: kindBoolean, strictjson.KindNull: kindNull, strictjson.KindNumber: kindNumber}

func (k kind) hasFlat(v strictjson.Value) bool {
	return k&flatKinds[v.Kind()] != 0 ||
		k&kindInteger != 0 && v.Kind() == strictjson.KindNumber && isInteger(json.Number(v.Text()))
}

func (k constant) passes(v strictjson.Value) bool { return equalFlat(v, k.value) }

func (k enumeration) passes(v strictjson.Value) bool {
	for _, want := range k.values {
		if equalFlat(v, want) {
			return true
		}
	}
	return false
}

func equalFlat(v strictjson.Value, want any) bool {
	switch want := want.(type) {
	case nil:
		return v.Kind() == strictjson.KindNull
	case string:
		return v.Kind() == strictjson.KindString && v.Text() == want
	case bool:
		return v.Kind() == strictjson.KindTrue && want || v.Kind() == strictjson.KindFalse && !want
	case json.Number:
		return v.Kind() == strictjson.KindNumber && sameNumber(json.Number(v.Text()), want)
	}
	return false
}

func (k length) passes(v strictjson.Value) bool {
	if v.Kind() != strictjson.KindString {
		return true
	}
	n := len(v.Text())
	if n >= k.min && n <= k.max && n < 2 || n >= utf8.UTFMax*k.min && n <= k.max {
		return true // however many bytes a character has
	}
	n = utf8.RuneCountInString(v.Text())
	return n >= k.min && (k.max == -1 || n <= k.max)
}

func (k pattern) passes(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindString || k.match(v.Text())
}

func (k format) passes(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindString || k.plain != nil && k.plain(v.Text()) || k.test(v.Text())
}

func (k bound) passes(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindNumber || k.holds(json.Number(v.Text()), nil)
}

func (k minProperties) passes(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindObject || v.Len() >= int(k)
}

func (k required) passes(v strictjson.Value) bool {
	if v.Kind() == strictjson.KindObject {
		for _, name := range k {
			if !v.Get(name).There() {
				return false
			}
		}
	}
	return true
}

func (k properties) passes(v strictjson.Value) bool {
	if v.Kind() != strictjson.KindObject {
		return true
	}
	for m := range v.All() {
		n, known := k.flat.Of(m)
		if !known {
			n = k.extra
		}
		if n == nil && k.closed || n != nil && !n.passes(m) {
			return false
		}
	}
	return true
}

func (k count) passes(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindArray || v.Len() >= k.min && (k.max == -1 || v.Len() <= k.max)
}

func (k unique) passes(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindArray || v.Len() < 2 || k.holds(v.Tree(), nil)
}

func (k items) passes(v strictjson.Value) bool {
	if v.Kind() != strictjson.KindArray {
		return true
	}
	i := 0
	for item := range v.All() {
		n := k.rest
		if i < len(k.prefix) {
			n = k.prefix[i]
		}
		if i++; n == nil {
			break
		}
		if !n.passes(item) {
			return false
		}
	}
	return true
}

func (k all) passes(v strictjson.Value) bool {
	for _, n := range k {
		if !n.passes(v) {
			return false
		}
	}
	return true
}

func (k some) passes(v strictjson.Value) bool {
	for _, n := range k.nodes {
		if n.passes(v) {
			return true
		}
	}
	return false
}

func (k conditional) passes(v strictjson.Value) bool {
	branch := k.otherwise
	if k.test.passes(v) {
		branch = k.then
	}
	return branch == nil || branch.passes(v)
}

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
	return r.entries[agentHookEnvelope].root.validateFlat(v) && plainAgentHook(v)
}

// PassesAgentHookProfile reports that AgentHookProfile finds nothing in an event
// on the log, or does not speak of it: it is of another type or has no block of
// AHP-013.
func (r *Registry) PassesAgentHookProfile(v strictjson.Value) bool {
	if !ProfileCovers(v.Get("event_type").Text()) || !hasGovernanceBlock(v.Get("metadata")) {
		return true
	}
	return r.entries[agentHookProfile+string(FormEvidence)].root.validateFlat(v)
}

// hasGovernanceBlock tells whether metadata have a block of AHP-013.
func hasGovernanceBlock(metadata strictjson.Value) bool {
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
	e, core := r.entries[r.coreSchemas[kind]]
	return core && plainAAEP(v, kind, e.plain) && e.root.validateFlat(v)
}

// plainAgentHook reports that none of agentHookRules can have anything to say.
func plainAgentHook(v strictjson.Value) bool {
	kind, source := v.Get("event_type").Text(), v.Get("source").Text()
	if !strings.HasSuffix(v.Get("timestamp").Text(), "Z") || source == "" || strings.ContainsFunc(source, notInSource) {
		return false
	}
	if version := v.Get("schema_version"); version.Exists() && version.Text() != "1" {
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
	if version := v.Get("aaep_version"); version.Exists() && version.Text() != "1.0.0" {
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

// validateFlat is eval for a document that was read flat. A value that does not pass is
// judged anew as a tree.
func (n *node) validateFlat(v strictjson.Value) bool {
	if n.kinds != 0 && !n.kinds.hasFlat(v) {
		return false
	}
	for _, k := range n.keywords {
		if !k.validateFlat(v) {
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

func (k constant) validateFlat(v strictjson.Value) bool { return equalFlat(v, k.value) }

func (k enumeration) validateFlat(v strictjson.Value) bool {
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

func (k stringLength) validateFlat(v strictjson.Value) bool {
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

func (k pattern) validateFlat(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindString || k.match(v.Text())
}

func (k format) validateFlat(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindString || k.plain != nil && k.plain(v.Text()) || k.test(v.Text())
}

func (k numberBound) validateFlat(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindNumber || k.validateTree(json.Number(v.Text()), nil)
}

func (k minProperties) validateFlat(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindObject || v.Len() >= int(k)
}

func (k required) validateFlat(v strictjson.Value) bool {
	if v.Kind() == strictjson.KindObject {
		for _, name := range k {
			if !v.Get(name).Exists() {
				return false
			}
		}
	}
	return true
}

func (k properties) validateFlat(v strictjson.Value) bool {
	if v.Kind() != strictjson.KindObject {
		return true
	}
	for m := range v.All() {
		n, known := k.flat.Of(m)
		if !known {
			n = k.additional
		}
		if n == nil && k.closed || n != nil && !n.validateFlat(m) {
			return false
		}
	}
	return true
}

func (k itemCount) validateFlat(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindArray || v.Len() >= k.min && (k.max == -1 || v.Len() <= k.max)
}

func (k uniqueItems) validateFlat(v strictjson.Value) bool {
	return v.Kind() != strictjson.KindArray || v.Len() < 2 || k.validateTree(v.Tree(), nil)
}

func (k itemSchemas) validateFlat(v strictjson.Value) bool {
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
		if !n.validateFlat(item) {
			return false
		}
	}
	return true
}

func (k allOf) validateFlat(v strictjson.Value) bool {
	for _, n := range k {
		if !n.validateFlat(v) {
			return false
		}
	}
	return true
}

func (k anyOf) validateFlat(v strictjson.Value) bool {
	for _, n := range k.nodes {
		if n.validateFlat(v) {
			return true
		}
	}
	return false
}

func (k conditional) validateFlat(v strictjson.Value) bool {
	branch := k.otherwise
	if k.test.validateFlat(v) {
		branch = k.then
	}
	return branch == nil || branch.validateFlat(v)
}

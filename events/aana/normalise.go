package aana

import (
	"maps"
	"strings"
)

// What a plain string stands for as an evidence reference. It is of kind other,
// so that it never proves an authorization.
const (
	quickstartProvenance = "runtime_quickstart"
	quickstartSummary    = "Named by the runtime in plain text."
	defaultProvenance    = "runtime"
)

// Normalise gives the document with every evidence reference in structured
// form: a string that is not blank becomes an object, and an object gets the
// weakest value for each of kind, trust_tier, redaction_status, provenance and
// freshness that it does not have. Everything else stays what it is, for the
// schema to refuse: references that are not in an array, blank strings, nulls,
// numbers. tree is not changed.
func Normalise(tree map[string]any) map[string]any {
	refs, ok := tree["evidence_refs"].([]any)
	if !ok {
		return tree
	}
	list := make([]any, len(refs))
	for i, ref := range refs {
		switch ref := ref.(type) {
		case string:
			list[i] = refFromText(ref)
		case map[string]any:
			list[i] = withDefaults(ref)
		default:
			list[i] = ref
		}
	}
	return withMember(tree, "evidence_refs", list)
}

func withMember(m map[string]any, key string, value any) map[string]any {
	c := maps.Clone(m)
	c[key] = value
	return c
}

func refFromText(text string) any {
	id := strings.TrimSpace(text)
	if id == "" {
		return text
	}
	return map[string]any{
		"source_id": id, "kind": KindOther, "trust_tier": TrustRuntime, "redaction_status": RedactionRedacted,
		"summary": quickstartSummary, "provenance": quickstartProvenance,
		"freshness": map[string]any{"status": Fresh, "source": quickstartProvenance},
	}
}

func withDefaults(ref map[string]any) map[string]any {
	c := maps.Clone(ref)
	for key, value := range map[string]any{
		"kind": KindOther, "trust_tier": TrustUnknown, "redaction_status": RedactionUnknown, "provenance": defaultProvenance,
	} {
		if _, there := c[key]; !there {
			c[key] = value
		}
	}
	if _, there := c["freshness"]; !there {
		c["freshness"] = map[string]any{"status": FreshnessUnknown}
	}
	return c
}

// coercions are the accepts that the contract's schema forbids (its conditionals
// A, B and C): what each becomes unless the authorization is at least this
// strong. For unknown no state is strong enough.
var coercions = map[Category]struct {
	needs State
	route Route
}{
	Write:       {Validated, Ask},
	PrivateRead: {Authenticated, Ask},
	Unknown:     {"", Defer},
}

// Coerce replaces a recommended accept that the contract's conditionals forbid by
// what it must be instead: ask for a write that is not validated and for a
// private read that is not authenticated, defer for an unknown category. It
// never makes a route looser.
func Coerce(c Category, s State, recommended Route) Route {
	rule, ruled := coercions[c]
	if recommended != Accept || !ruled || rule.needs != "" && s.Strength() >= rule.needs.Strength() {
		return recommended
	}
	return rule.route
}

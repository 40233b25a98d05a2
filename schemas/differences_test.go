package schemas

import (
	"maps"
	"regexp"
	"slices"
)

// difference is a place where our verdict differs from the published schema's
// on purpose.
type difference struct {
	name   string
	reason string
	ours   []string // schemas it belongs to; none for all
	accept bool     // our verdict; the published schema's is the opposite
	match  func(doc map[string]any) bool
}

var differences = []difference{
	{
		name:   "H-02 request form",
		reason: "an event that asks for admission cannot carry the verdict yet; the text says so, the schema demands it",
		ours:   []string{"agenthook/action-governance.request"}, accept: true,
		match: func(doc map[string]any) bool {
			return doc["event_type"] == "PreToolUse" && lacks(doc["metadata"], "admission_verdict")
		},
	},
	{
		name:   "H-02 absent phase",
		reason: "the published condition is also met when evidence_phase is absent",
		ours:   []string{"agenthook/action-governance.evidence"}, accept: true,
		match: func(doc map[string]any) bool {
			return doc["event_type"] == "PreToolUse" && lacks(doc, "evidence_phase") && lacks(doc["metadata"], "admission_verdict")
		},
	},
	{
		name:   "H-06 nothing executed",
		reason: "a call that was denied, blocked, cancelled or timed out has no executed input",
		ours:   []string{"agenthook/action-governance.request", "agenthook/action-governance.evidence"}, accept: true,
		match: func(doc map[string]any) bool {
			meta, _ := doc["metadata"].(map[string]any)
			execution, _ := meta["execution"].(map[string]any)
			outcome, _ := execution["outcome"].(string)
			return doc["event_type"] == "PostToolUse" && lacks(doc["metadata"], "tool_input_executed") &&
				slices.Contains([]string{"denied", "blocked", "cancelled", "timed_out"}, outcome)
		},
	},
	{
		name:   "H-04 authenticity and hooks",
		reason: "the text of section 6 and AHP-008 put them there; the closed schema does not know them",
		ours:   []string{"agenthook/runtime-attestation"}, accept: true,
		match: func(doc map[string]any) bool { return !lacks(doc, "authenticity") || !lacks(doc, "hooks") },
	},
	{
		name:   "H-05 hook_trust",
		reason: "AHP-008 puts expected hooks into the manifest; the closed schema does not know them",
		ours:   []string{"agenthook/publisher-manifest"}, accept: true,
		match: func(doc map[string]any) bool { return !lacks(doc, "hook_trust") },
	},
	{
		name:   "signs in times",
		reason: "a fault of the library's date-time test, which ours closes",
		accept: false,
		match:  func(doc map[string]any) bool { return signed(doc) },
	},
}

func lacks(v any, key string) bool {
	m, _ := v.(map[string]any)
	_, there := m[key]
	return !there
}

// signInTime is a sign where a digit belongs.
var signInTime = regexp.MustCompile(`^[0-9-]{10}([Tt]|[Tt].*:)[+-]`)

// signed reports whether a text anywhere in v looks like a time with signs.
func signed(v any) bool {
	switch v := v.(type) {
	case string:
		return signInTime.MatchString(v)
	case []any:
		return slices.ContainsFunc(v, signed)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), signed)
	}
	return false
}

func (d difference) covers(ours string, accept bool, doc any) bool {
	m, ok := doc.(map[string]any)
	return ok && d.accept == accept && (len(d.ours) == 0 || slices.Contains(d.ours, ours)) && d.match(m)
}

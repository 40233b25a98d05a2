package aana

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrNotNormal is the error of NormaliseSDK. Errors that wrap it state the place and the defect
// and never hold a value.
var ErrNotNormal = errors.New("the event cannot be normalised")

// NormaliseSDK normalises as the reference's SDK does. It is only for comparison: it is looser
// than the contract. Without schema_version it also drops unknown members, defaults missing
// ones and replaces an accept that the contract forbids. The error wraps ErrNotNormal. tree is
// not changed.
//
// Where the reference converts a value to text or a list by the rules of its language, numbers
// and booleans become text here and other values are refused.
func NormaliseSDK(tree map[string]any) (map[string]any, error) {
	if tree["schema_version"] == any(ContractVersion) {
		refs, err := sdkRefs(tree["evidence_refs"])
		if err != nil {
			return nil, err
		}
		return withMember(tree, "evidence_refs", refs), nil
	}
	return sdkRebuild(tree)
}

// sdkDefaults replace missing required members.
var sdkDefaults = map[string]any{
	"risk_domain": string(Unknown), "proposed_arguments": map[string]any{}, "recommended_route": string(Accept),
}

// sdkEnums are the members with values that are checked before the schema.
var sdkEnums = []struct {
	key string
	has func(string) bool
}{
	{"tool_category", func(s string) bool { return slices.Contains(categories, Category(s)) }},
	{"authorization_state", func(s string) bool { return slices.Contains(states, State(s)) }},
	{"recommended_route", func(s string) bool { return slices.Contains(routes, Route(s)) }},
	{"risk_domain", func(s string) bool { return slices.Contains(riskDomains, s) }},
}

func sdkRebuild(tree map[string]any) (map[string]any, error) {
	out := map[string]any{"schema_version": ContractVersion}
	for _, e := range sdkEnums {
		v, there := tree[e.key]
		if !there {
			v = sdkDefaults[e.key]
		}
		s, ok := v.(string)
		if !ok || !e.has(s) {
			return nil, fmt.Errorf("%w: %s has an unsupported value", ErrNotNormal, e.key)
		}
		out[e.key] = s
	}
	args, there := tree["proposed_arguments"]
	if !there {
		args = sdkDefaults["proposed_arguments"]
	}
	if _, ok := args.(map[string]any); !ok {
		return nil, fmt.Errorf("%w: proposed_arguments is not an object", ErrNotNormal)
	}
	out["proposed_arguments"] = args
	refs, err := sdkRefs(tree["evidence_refs"])
	if err != nil {
		return nil, err
	}
	out["evidence_refs"] = refs
	if err := sdkTexts(tree, out); err != nil {
		return nil, err
	}
	category, state := Category(out["tool_category"].(string)), State(out["authorization_state"].(string))
	out["recommended_route"] = string(Coerce(category, state, Route(out["recommended_route"].(string))))
	return out, nil
}

func sdkTexts(tree, out map[string]any) error {
	name, ok := pythonText(tree["tool_name"])
	if !ok {
		return fmt.Errorf("%w: tool_name is not text", ErrNotNormal)
	}
	out["tool_name"] = name
	for _, key := range []string{"request_id", "agent_id", "user_intent"} {
		v, there := tree[key]
		if !there || v == nil || v == "" || v == false || v == json.Number("0") {
			continue
		}
		s, ok := pythonText(v)
		if !ok {
			return fmt.Errorf("%w: %s is not text", ErrNotNormal, key)
		}
		out[key] = s
	}
	if v := tree["authorization_subject"]; v != nil {
		if _, ok := v.(map[string]any); !ok {
			return fmt.Errorf("%w: authorization_subject is not an object", ErrNotNormal)
		}
		out["authorization_subject"] = v
	}
	return nil
}

// pythonText is str() for values with one obvious text.
func pythonText(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "None", true
	case string:
		return v, true
	case json.Number:
		return string(v), true
	case bool:
		if v {
			return "True", true
		}
		return "False", true
	}
	return "", false
}

// refMembers are all members that a reference may have; true means that the member is converted
// to text.
var refMembers = map[string]bool{
	"source_id": false, "kind": false, "trust_tier": false, "redaction_status": false, "freshness": false, "supports": false, "contradicts": false,
	"summary": true, "retrieved_at": true, "citation_url": true, "retrieval_url": true, "provenance": true,
}

func sdkRefs(v any) ([]any, error) {
	refs, ok := v.([]any)
	switch {
	case v == nil:
		return []any{}, nil
	case !ok:
		refs = []any{v}
	}
	list := make([]any, len(refs))
	for i, ref := range refs {
		var err error
		if list[i], err = sdkRef(ref); err != nil {
			return nil, fmt.Errorf("%w: evidence_refs[%s] %w", ErrNotNormal, strconv.Itoa(i), err)
		}
	}
	return list, nil
}

var (
	errBlankRef  = errors.New("is blank")
	errNoRef     = errors.New("is neither text nor an object")
	errRefMember = errors.New("has an unknown member or one with an unsupported value")
)

var sdkRefEnums = map[string][]string{
	"kind":             {"user_message", "assistant_message", "tool_result", "policy", "auth_event", "approval", "system_state", "audit_record", "other"},
	"trust_tier":       {"verified", "runtime", "user_claimed", "unverified", "unknown"},
	"redaction_status": {"public", "redacted", "sensitive", "unknown"},
}

func sdkRef(v any) (any, error) {
	if text, ok := v.(string); ok {
		ref := refFromText(text)
		if _, blank := ref.(string); blank {
			return nil, errBlankRef
		}
		return ref, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errNoRef
	}
	ref := withDefaults(m)
	if !sdkMembers(ref) {
		return nil, errRefMember
	}
	for _, key := range []string{"supports", "contradicts"} {
		if list, there := ref[key]; there && list == nil {
			delete(ref, key)
		}
	}
	if ref["provenance"] == nil {
		ref["provenance"] = defaultProvenance
	}
	ref["freshness"] = sdkFreshness(ref)
	return ref, nil
}

// sdkMembers converts the textual members of a reference to text and reports whether the
// reference's SDK would accept it.
func sdkMembers(ref map[string]any) bool {
	for key, value := range ref {
		textual, known := refMembers[key]
		switch {
		case !known:
			return false
		case !textual:
		case value == nil:
			delete(ref, key)
		default:
			text, ok := pythonText(value)
			if !ok {
				return false
			}
			ref[key] = text
		}
	}
	for key, values := range sdkRefEnums {
		if s, ok := ref[key].(string); !ok || !slices.Contains(values, s) {
			return false
		}
	}
	id, ok := ref["source_id"].(string)
	return ok && strings.TrimSpace(id) != ""
}

// sdkFreshness completes a freshness that is null, not an object, or without a status.
func sdkFreshness(ref map[string]any) map[string]any {
	trusted := ref["trust_tier"] == TrustVerified || ref["trust_tier"] == TrustRuntime
	given := ref["freshness"]
	f, ok := given.(map[string]any)
	switch {
	case given == nil:
		if retrieved, _ := ref["retrieved_at"].(string); trusted || retrieved != "" {
			return map[string]any{"status": Fresh}
		}
		return map[string]any{"status": FreshnessUnknown}
	case !ok:
		status, _ := pythonText(given)
		return map[string]any{"status": status}
	}
	if _, there := f["status"]; there {
		return f
	}
	if trusted {
		return withMember(f, "status", Fresh)
	}
	return withMember(f, "status", FreshnessUnknown)
}

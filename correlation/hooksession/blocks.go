package hooksession

import "github.com/countersign-dev/countersign/events/agenthook"

// attestation is what a runtime says of its gate (SPEC 6).
type attestation struct {
	session, nonce   string
	issued, expires  string
	authenticity     string
	signed           bool
	gated, noBypass  bool // what it claims
	closed           bool // without a verdict nothing runs
	documents        bool // it says what happens without one
	canDeny, hasList bool // an enforcing subscriber of PreToolUse can deny
}

func newAttestation(b map[string]any) *attestation {
	a := &attestation{
		session: bounded(text(b, "session_id")), nonce: bounded(text(b, "nonce")),
		issued: text(b, "issued_at"), expires: text(b, "expires_at"),
		authenticity: text(b, "authenticity"), signed: text(b, "signature") != "", closed: text(b, "fail_mode") == "fail_closed", documents: text(b, "fail_mode") != "",
	}
	claims, _ := b["claims"].(map[string]any)
	a.gated, _ = claims["tool_calls_are_runtime_gated"].(bool)
	a.noBypass, _ = claims["do_not_bypass_gate"].(bool)
	list, ok := b["active_subscribers"].([]any)
	a.hasList = ok
	for _, s := range list {
		sub, _ := s.(map[string]any)
		deny, _ := sub["can_deny"].(bool)
		if deny && text(sub, "mode") == "enforce" && listens(sub["events"]) {
			a.canDeny = true
		}
	}
	return a
}

func listens(v any) bool {
	events, _ := v.([]any)
	for _, e := range events {
		if e == "PreToolUse" || e == "*" {
			return true
		}
	}
	return false
}

// hookTrust is one metadata.hook_trust entry (AHP-008).
type hookTrust struct {
	id, runtime, event, status   string
	fingerprint, alg, source     string
	expectedPrint, observedPrint string
}

const maxHooks = 32 // of one event

// trusts reads one hook_trust object or an array of them.
func trusts(v any) []hookTrust {
	switch v := v.(type) {
	case map[string]any:
		return []hookTrust{newHookTrust(v)}
	case []any:
		var list []hookTrust
		for _, item := range v[:min(len(v), maxHooks)] {
			if m, ok := item.(map[string]any); ok {
				list = append(list, newHookTrust(m))
			}
		}
		return list
	}
	return nil
}

func newHookTrust(m map[string]any) hookTrust {
	return hookTrust{
		id: bounded(text(m, "hook_id")), runtime: text(m, "runtime"), event: text(m, "hook_event"), status: text(m, "trust_status"),
		fingerprint: bounded(text(m, "fingerprint")), alg: text(m, "fingerprint_alg"), source: text(m, "source"),
		expectedPrint: bounded(text(m, "expected_fingerprint")), observedPrint: bounded(text(m, "observed_fingerprint")),
	}
}

func (h hookTrust) complete() bool {
	named := h.id != "" && h.runtime != "" && h.event != ""
	return named && trustWords[h.status] && trustSources[h.source] && (h.fingerprint == "" || h.alg == "sha256")
}

// contract is what a runtime_contract requires (AHP-009).
type contract struct {
	required map[string]bool // hook events
	closed   bool            // it fails closed
	// documents: it says how it fails.
	documents bool
}

func newContract(m map[string]any) *contract {
	c := &contract{required: map[string]bool{}, closed: text(m, "fail_mode") == "fail_closed", documents: text(m, "fail_mode") != ""}
	list, _ := m["required_hooks"].([]any)
	for _, h := range list[:min(len(list), maxHooks)] {
		if name, ok := h.(string); ok {
			c.required[bounded(name)] = true
		}
	}
	return c
}

// distrusted are the words for hooks that are not to be relied on.
var distrusted = words("modified", "untrusted", "disabled", "unknown")

// web is metadata.web (AHP-012).
type web struct {
	search, set, action, parent, evidence, url string
	pick
	hasResults bool
	results    map[string]int64 // ranks, 0 if a result has none
	uses       []string         // evidence ids
	contents   [2][2]string     // reference and hash
}

// pick is a result that was selected.
type pick struct {
	selected string
	rank     int64
	ranked   bool
}

const maxResults = 64 // of one event

func newWeb(b map[string]any) *web {
	w := &web{
		search: bounded(text(b, "search_id")), set: bounded(text(b, "result_set_id")),
		action: bounded(text(b, "action_id")), parent: bounded(agenthook.NormaliseID(text(b, "parent_event_id"))), evidence: bounded(text(b, "evidence_id")),
		url: first(text(b, "url"), text(b, "final_url")),
		contents: [2][2]string{
			{bounded(text(b, "content_ref")), bounded(text(b, "content_hash"))},
			{bounded(text(b, "screenshot_ref")), bounded(text(b, "screenshot_hash"))},
		},
	}
	w.selected = bounded(text(b, "selected_result_id"))
	w.rank, w.ranked = number(b["selected_rank"])
	if list, ok := b["results"].([]any); ok {
		w.hasResults, w.results = true, map[string]int64{}
		for _, r := range list[:min(len(list), maxResults)] {
			m, _ := r.(map[string]any)
			w.results[bounded(text(m, "result_id"))], _ = number(m["rank"])
		}
		w.hasResults = len(list) <= maxResults
	}
	ids, _ := b["evidence_ids"].([]any)
	for _, id := range ids[:min(len(ids), maxResults)] {
		if s, ok := id.(string); ok {
			w.uses = append(w.uses, bounded(s))
		}
	}
	return w
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

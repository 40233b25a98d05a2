package agenthook

import (
	"cmp"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events/agenthook"
)

// attestation is what a runtime says of its gate (SPEC 6).
type attestation struct {
	session, nonce             string
	issued, expires            string
	authenticity               string
	signed                     bool
	claimsGate, claimsNoBypass bool // what it claims
	failsClosed                bool // without a verdict nothing runs
	statesFailMode             bool // it says what happens without one
	canDeny, listsSubscribers  bool // an enforcing subscriber of PreToolUse can deny
}

func newAttestation(b map[string]any) *attestation {
	a := &attestation{
		session: fact.BoundID(stringMember(b, "session_id")), nonce: fact.BoundID(stringMember(b, "nonce")),
		issued: stringMember(b, "issued_at"), expires: stringMember(b, "expires_at"),
		authenticity: stringMember(b, "authenticity"), signed: stringMember(b, "signature") != "", failsClosed: stringMember(b, "fail_mode") == "fail_closed", statesFailMode: stringMember(b, "fail_mode") != "",
	}
	claims, _ := b["claims"].(map[string]any)
	a.claimsGate, _ = claims["tool_calls_are_runtime_gated"].(bool)
	a.claimsNoBypass, _ = claims["do_not_bypass_gate"].(bool)
	list, ok := b["active_subscribers"].([]any)
	a.listsSubscribers = ok
	for _, s := range list {
		sub, _ := s.(map[string]any)
		deny, _ := sub["can_deny"].(bool)
		if deny && stringMember(sub, "mode") == "enforce" && coversPreToolUse(sub["events"]) {
			a.canDeny = true
		}
	}
	return a
}

func coversPreToolUse(v any) bool {
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
	id, runtime, hookEvent, status           string
	fingerprint, alg, source                 string
	expectedFingerprint, observedFingerprint string
}

const maxHooks = 32 // of one event

// readHookTrust reads one hook_trust object or an array of them.
func readHookTrust(v any) []hookTrust {
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
		id: fact.BoundID(stringMember(m, "hook_id")), runtime: stringMember(m, "runtime"), hookEvent: stringMember(m, "hook_event"), status: stringMember(m, "trust_status"),
		fingerprint: fact.BoundID(stringMember(m, "fingerprint")), alg: stringMember(m, "fingerprint_alg"), source: stringMember(m, "source"),
		expectedFingerprint: fact.BoundID(stringMember(m, "expected_fingerprint")), observedFingerprint: fact.BoundID(stringMember(m, "observed_fingerprint")),
	}
}

func (h hookTrust) isComplete() bool {
	named := h.id != "" && h.runtime != "" && h.hookEvent != ""
	return named && trustStatuses[h.status] && trustSources[h.source] && (h.fingerprint == "" || h.alg == "sha256")
}

// contract is what a runtime_contract requires (AHP-009).
type contract struct {
	requiredHooks map[string]bool // hook events
	failsClosed   bool            // it fails closed
	// statesFailMode: it says how it fails.
	statesFailMode bool
}

func newContract(m map[string]any) *contract {
	c := &contract{requiredHooks: map[string]bool{}, failsClosed: stringMember(m, "fail_mode") == "fail_closed", statesFailMode: stringMember(m, "fail_mode") != ""}
	list, _ := m["required_hooks"].([]any)
	for _, h := range list[:min(len(list), maxHooks)] {
		if name, ok := h.(string); ok {
			c.requiredHooks[fact.BoundID(name)] = true
		}
	}
	return c
}

// distrustedStatuses are the words for hooks that are not to be relied on.
var distrustedStatuses = wordSet("modified", "untrusted", "disabled", "unknown")

// webBlock is metadata.web (AHP-012).
type webBlock struct {
	searchID, resultSetID, actionID, parentEventID, evidenceID, url string
	selectedResult
	hasResults    bool
	results       map[string]int64 // ranks, 0 if a result has none
	usedEvidence  []string         // evidence ids
	contentHashes [2][2]string     // reference and hash
}

// selectedResult is a result that was selected.
type selectedResult struct {
	resultID string
	rank     int64
	hasRank  bool
}

const maxResults = 64 // of one event

func newWebBlock(b map[string]any) *webBlock {
	w := &webBlock{
		searchID: fact.BoundID(stringMember(b, "search_id")), resultSetID: fact.BoundID(stringMember(b, "result_set_id")),
		actionID: fact.BoundID(stringMember(b, "action_id")), parentEventID: fact.BoundID(agenthook.NormaliseID(stringMember(b, "parent_event_id"))), evidenceID: fact.BoundID(stringMember(b, "evidence_id")),
		url: cmp.Or(stringMember(b, "url"), stringMember(b, "final_url")),
		contentHashes: [2][2]string{
			{fact.BoundID(stringMember(b, "content_ref")), fact.BoundID(stringMember(b, "content_hash"))},
			{fact.BoundID(stringMember(b, "screenshot_ref")), fact.BoundID(stringMember(b, "screenshot_hash"))},
		},
	}
	w.resultID = fact.BoundID(stringMember(b, "selected_result_id"))
	w.rank, w.hasRank = intMember(b["selected_rank"])
	if list, ok := b["results"].([]any); ok {
		w.hasResults, w.results = true, map[string]int64{}
		for _, r := range list[:min(len(list), maxResults)] {
			m, _ := r.(map[string]any)
			w.results[fact.BoundID(stringMember(m, "result_id"))], _ = intMember(m["rank"])
		}
		w.hasResults = len(list) <= maxResults
	}
	ids, _ := b["evidence_ids"].([]any)
	for _, id := range ids[:min(len(ids), maxResults)] {
		if s, ok := id.(string); ok {
			w.usedEvidence = append(w.usedEvidence, fact.BoundID(s))
		}
	}
	return w
}

package agenthook

import (
	"cmp"

	"github.com/countersign-dev/countersign/events/agenthook"
)

// attestation is what a runtime says of its gate (SPEC 6).
type attestation struct {
	session, nonce             string
	issued, expires            string
	authenticity               string
	signed                     bool
	claimsGate, claimsNoBypass bool // claims about the gate
	failsClosed                bool // nothing runs without a verdict
	statesFailMode             bool // it says what happens without a verdict
	canDeny, listsSubscribers  bool // an enforcing subscriber of PreToolUse can deny; subscribers are listed
}

func newAttestation(b map[string]any) *attestation {
	a := &attestation{
		session: boundID(stringMember(b, "session_id")), nonce: boundID(stringMember(b, "nonce")),
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

// hookTrust is one entry of metadata.hook_trust (AHP-008).
type hookTrust struct {
	id, runtime, hookEvent, status           string
	fingerprint, alg, source                 string
	expectedFingerprint, observedFingerprint string
}

const maxHooks = 32 // entries of one event

// readHookTrust parses metadata.hook_trust: one object or an array of them.
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
		id: boundID(stringMember(m, "hook_id")), runtime: stringMember(m, "runtime"), hookEvent: stringMember(m, "hook_event"), status: stringMember(m, "trust_status"),
		fingerprint: boundID(stringMember(m, "fingerprint")), alg: stringMember(m, "fingerprint_alg"), source: stringMember(m, "source"),
		expectedFingerprint: boundID(stringMember(m, "expected_fingerprint")), observedFingerprint: boundID(stringMember(m, "observed_fingerprint")),
	}
}

func (h hookTrust) isComplete() bool {
	named := h.id != "" && h.runtime != "" && h.hookEvent != ""
	return named && trustStatuses[h.status] && trustSources[h.source] && (h.fingerprint == "" || h.alg == "sha256")
}

// contract is a runtime_contract (AHP-009).
type contract struct {
	requiredHooks map[string]bool // by hook event
	failsClosed   bool            // nothing runs without a verdict
	// statesFailMode says that the contract names a fail mode.
	statesFailMode bool
}

func newContract(m map[string]any) *contract {
	c := &contract{requiredHooks: map[string]bool{}, failsClosed: stringMember(m, "fail_mode") == "fail_closed", statesFailMode: stringMember(m, "fail_mode") != ""}
	list, _ := m["required_hooks"].([]any)
	for _, h := range list[:min(len(list), maxHooks)] {
		if name, ok := h.(string); ok {
			c.requiredHooks[boundID(name)] = true
		}
	}
	return c
}

// distrustedStatuses are the statuses of unreliable hooks.
var distrustedStatuses = wordSet("modified", "untrusted", "disabled", "unknown")

// webBlock is metadata.web (AHP-012).
type webBlock struct {
	searchID, resultSetID, actionID, parentEventID, evidenceID, url string
	selectedResult
	hasResults    bool
	results       map[string]int64 // ranks; 0 if a result has none
	usedEvidence  []string         // evidence ids
	contentHashes [2][2]string     // reference and hash
}

// selectedResult is a result that was selected.
type selectedResult struct {
	resultID string
	rank     int64
	hasRank  bool
}

const maxResults = 64 // results of one event

func newWebBlock(b map[string]any) *webBlock {
	w := &webBlock{
		searchID: boundID(stringMember(b, "search_id")), resultSetID: boundID(stringMember(b, "result_set_id")),
		actionID: boundID(stringMember(b, "action_id")), parentEventID: boundID(agenthook.NormaliseID(stringMember(b, "parent_event_id"))), evidenceID: boundID(stringMember(b, "evidence_id")),
		url: cmp.Or(stringMember(b, "url"), stringMember(b, "final_url")),
		contentHashes: [2][2]string{
			{boundID(stringMember(b, "content_ref")), boundID(stringMember(b, "content_hash"))},
			{boundID(stringMember(b, "screenshot_ref")), boundID(stringMember(b, "screenshot_hash"))},
		},
	}
	w.resultID = boundID(stringMember(b, "selected_result_id"))
	w.rank, w.hasRank = intMember(b["selected_rank"])
	if list, ok := b["results"].([]any); ok {
		w.hasResults, w.results = true, map[string]int64{}
		for _, r := range list[:min(len(list), maxResults)] {
			m, _ := r.(map[string]any)
			w.results[boundID(stringMember(m, "result_id"))], _ = intMember(m["rank"])
		}
		w.hasResults = len(list) <= maxResults
	}
	ids, _ := b["evidence_ids"].([]any)
	for _, id := range ids[:min(len(ids), maxResults)] {
		if s, ok := id.(string); ok {
			w.usedEvidence = append(w.usedEvidence, boundID(s))
		}
	}
	return w
}

package agenthook

import (
	"cmp"
	"iter"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// attestation is what a runtime says of its gate (SPEC 6).
type attestation struct {
	event                      eventRef // set when the session applies it
	content                    fact.Sum
	session, nonce             string
	issued, expires            string
	authenticity               string
	signed                     bool
	claimsGate, claimsNoBypass bool // claims about the gate
	failsClosed                bool // nothing runs without a verdict
	statesFailMode             bool // it says what happens without a verdict
	canDeny, listsSubscribers  bool // an enforcing subscriber of PreToolUse can deny; subscribers are listed
}

func newAttestation(b strictjson.Value) *attestation {
	a := &attestation{
		session: fact.BoundID(stringMember(b, "session_id")), nonce: fact.BoundID(stringMember(b, "nonce")),
		content: fact.SumOfBytes(b.AppendCanonical(nil)), issued: stringMember(b, "issued_at"), expires: stringMember(b, "expires_at"),
		authenticity: stringMember(b, "authenticity"), signed: stringMember(b, "signature") != "", failsClosed: stringMember(b, "fail_mode") == "fail_closed", statesFailMode: stringMember(b, "fail_mode") != "",
	}
	claims := b.Get("claims")
	a.claimsGate = claims.Get("tool_calls_are_runtime_gated").Kind() == strictjson.KindTrue
	a.claimsNoBypass = claims.Get("do_not_bypass_gate").Kind() == strictjson.KindTrue
	list := b.Get("active_subscribers")
	a.listsSubscribers = list.Kind() == strictjson.KindArray
	for sub := range itemsOf(list) {
		deny := sub.Get("can_deny").Kind() == strictjson.KindTrue
		if deny && sub.MemberText("mode") == "enforce" && coversPreToolUse(sub.Get("events")) {
			a.canDeny = true
		}
	}
	return a
}

// itemsOf are the items of an array; none of any other value.
func itemsOf(v strictjson.Value) iter.Seq[strictjson.Value] {
	if v.Kind() != strictjson.KindArray {
		v = strictjson.Value{}
	}
	return v.All()
}

func coversPreToolUse(events strictjson.Value) bool {
	for e := range itemsOf(events) {
		if e.IsText("PreToolUse") || e.IsText("*") {
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

// readHookTrust reads one hook_trust object or an array of them.
func readHookTrust(v strictjson.Value) (list []hookTrust) {
	if v.Kind() == strictjson.KindObject {
		return []hookTrust{newHookTrust(v)}
	}
	for item := range firstItems(v, maxHooks) {
		if item.Kind() == strictjson.KindObject {
			list = append(list, newHookTrust(item))
		}
	}
	return list
}

// firstItems are the items of an array, but for those after the first most.
func firstItems(v strictjson.Value, most int) iter.Seq[strictjson.Value] {
	return func(yield func(strictjson.Value) bool) {
		left := most
		for item := range itemsOf(v) {
			if left == 0 || !yield(item) {
				return
			}
			left--
		}
	}
}

func newHookTrust(m strictjson.Value) hookTrust {
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

// contract is a runtime_contract (AHP-009).
type contract struct {
	requiredHooks map[string]bool // by hook event
	failsClosed   bool            // nothing runs without a verdict
	// statesFailMode says that the contract names a fail mode.
	statesFailMode bool
}

func newContract(m strictjson.Value) *contract {
	c := &contract{requiredHooks: map[string]bool{}, failsClosed: stringMember(m, "fail_mode") == "fail_closed", statesFailMode: stringMember(m, "fail_mode") != ""}
	for h := range firstItems(m.Get("required_hooks"), maxHooks) {
		if h.Kind() == strictjson.KindString {
			c.requiredHooks[fact.BoundID(h.Text())] = true
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

func newWebBlock(b strictjson.Value) *webBlock {
	w := &webBlock{
		searchID: fact.BoundID(stringMember(b, "search_id")), resultSetID: fact.BoundID(stringMember(b, "result_set_id")),
		actionID: fact.BoundID(stringMember(b, "action_id")), parentEventID: fact.BoundID(events.NormaliseID(stringMember(b, "parent_event_id"))), evidenceID: fact.BoundID(stringMember(b, "evidence_id")),
		url: cmp.Or(stringMember(b, "url"), stringMember(b, "final_url")),
		contentHashes: [2][2]string{
			{fact.BoundID(stringMember(b, "content_ref")), fact.BoundID(stringMember(b, "content_hash"))},
			{fact.BoundID(stringMember(b, "screenshot_ref")), fact.BoundID(stringMember(b, "screenshot_hash"))},
		},
	}
	w.resultID = fact.BoundID(stringMember(b, "selected_result_id"))
	w.rank, w.hasRank = intMember(b.Get("selected_rank"))
	if list := b.Get("results"); list.Kind() == strictjson.KindArray {
		w.results = map[string]int64{}
		for r := range firstItems(list, maxResults) {
			w.results[fact.BoundID(stringMember(r, "result_id"))], _ = intMember(r.Get("rank"))
		}
		w.hasResults = list.Len() <= maxResults
	}
	for id := range firstItems(b.Get("evidence_ids"), maxResults) {
		if id.Kind() == strictjson.KindString {
			w.usedEvidence = append(w.usedEvidence, fact.BoundID(id.Text()))
		}
	}
	return w
}

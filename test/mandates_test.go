package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// shopping is a mandate over EUR 10.00 for one action, valid now.
func shopping(id string) object {
	at := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(time.RFC3339) }
	return object{
		"aump": object{"version": "0.1.0", "type": "mandate"}, "id": id, "status": "active", "issued_at": at(-time.Hour), "expires_at": at(time.Hour),
		"principal": object{"type": "team", "display_name": "Kitchen"}, "agent": object{"id": "agent-kitchen", "name": "Kitchen agent"},
		"purpose": object{"summary": "Buy what the kitchen needs.", "domain": "groceries", "intent": "Have enough tea."},
		"authority": object{"mode": "delegated", "budget": object{"currency": "EUR", "max_total_minor": 1000}, "permissions": []string{"buy_tea"},
			"prohibited_actions": []string{}, "requires_trusted_ui_for_commitment": false},
		"preferences": object{"hard_constraints": []object{}, "soft_preferences": []object{}, "dealbreakers": []string{}},
		"negotiation": object{"strategy": "firm", "communication_style": "Short.", "max_rounds": 1, "walk_away_conditions": []string{}},
		"disclosure":  object{"default": "deny", "allowed": []object{}, "prohibited": []object{}},
		"escalation":  object{"required_conditions": []string{}, "contact_modes": []string{"app"}},
		"evidence":    object{"retention": "hashes", "events_required": []string{}},
	}
}

// mandateHash is the hash by which a request names a mandate: of its canonical
// form, which for these documents is what encoding/json writes.
func mandateHash(m object) string {
	sum := sha256.Sum256(m.bytes())
	return "sha256-" + hex.EncodeToString(sum[:])
}

// purchase is an action; amount is in minor units, 0 for none.
func purchase(amount int) object {
	if amount == 0 {
		return object{"type": "buy_tea", "summary": "Buy tea."}
	}
	return object{"type": "buy_tea", "summary": "Buy tea.", "amount": object{"currency": "EUR", "total_minor": amount}}
}

func underMandate(id, hash string, action object) []byte {
	return object{
		"aump": object{"version": "0.1.0", "type": "action_evaluation_request"}, "mandate_ref": object{"id": id, "hash": hash, "version": "0.1.0"},
		"proposed_action": action,
	}.bytes()
}

// evaluated is an AUMP reply in short.
func evaluated(a answer) string {
	out := []string{a.body.text("decision")}
	for _, c := range a.body["reason_codes"].([]any) {
		out = append(out, c.(string))
	}
	return strings.Join(out, " ")
}

const tooExpensive = "denied hard_constraint_violation price_above_budget"

func mandateFile(t testing.TB, m object) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mandate.json")
	ok(t, os.WriteFile(name, m.bytes(), 0o600))
	return name
}

// TestMandates follows a mandate from its first put to its revocation, and its
// money from admission to what became of it.
func TestMandates(t *testing.T) {
	s := shared(t)
	r, db := s.runtime(t), s.auditors(t)
	const id, sess = "aump_mnd_e2e_kitchen", "s-mandates"
	m := shopping(id)
	hash := mandateHash(m)
	buyUnder := func(hash, call string, amount int) answer {
		h := []string{"Countersign-Session", sess}
		if call != "" {
			h = append(h, "Countersign-Tool-Call-Id", call)
		}
		return r.admit(t, "aump", underMandate(id, hash, purchase(amount)), h...)
	}
	buy := func(call string, amount int) answer { return buyUnder(hash, call, amount) }
	becomes := func(want, call string, amount int) {
		t.Helper()
		eventually(t, call+" becomes "+want, func() error {
			if got := evaluated(buy(call, amount)); got != want {
				return errorf("%s", got)
			}
			return nil
		})
	}
	if got := evaluated(buy("c0", 1)); got != "denied mandate_not_found" {
		t.Errorf("before it is there: %s", got)
	}

	put := s.run(t, "mandate", "put", "--author", "ada", mandateFile(t, m)).want(t, 0)
	if !strings.Contains(put.out, hash) {
		t.Errorf("put says %s, the hash is %s", put.out, hash)
	}
	becomes("allowed", "c1", 600)
	for _, tc := range []struct {
		call   string
		amount int
		want   string
	}{{"c1", 600, "allowed"}, {"c2", 500, tooExpensive}, {"c2", 400, "allowed"}, {"", 1, tooExpensive}} {
		if got := evaluated(buy(tc.call, tc.amount)); got != tc.want {
			t.Errorf("%s %d: %s, want %s", tc.call, tc.amount, got, tc.want)
		}
	}
	if a := buyUnder("sha256-"+strings.Repeat("0", 64), "c3", 0); evaluated(a) != "denied mandate_not_found" || a.body.text("mandate_ref.hash") == hash {
		t.Errorf("another hash: %s", a.msg.Data)
	}

	for call, amount := range map[string]int{"c1": 600, "c2": 400} {
		r.publish(t, postToolUse(preToolUse(sess, call, "buy_tea", purchase(amount))))
	}
	eventually(t, "the books show it", func() error {
		var list []struct {
			ID    string `json:"id"`
			Spent []struct{ Currency string }
		}
		out := s.run(t, "mandate", "list", "--json").want(t, 0).out
		ok(t, json.Unmarshal([]byte(out), &list))
		if len(list) != 1 || list[0].ID != id || !strings.Contains(out, `"currency":"EUR","settled_minor":1000,"reserved_minor":0`) {
			return errorf("%s", out)
		}
		return nil
	})

	// A new version under the same id; the money that was spent stays spent.
	larger := m.with("authority.budget.max_total_minor", 1100)
	s.run(t, "mandate", "put", mandateFile(t, larger)).want(t, 0)
	eventually(t, "the new version is in force", func() error {
		if got := evaluated(buyUnder(mandateHash(larger), "c6", 100)); got != "allowed" {
			return errorf("%s", got)
		}
		return nil
	})
	if got := evaluated(buyUnder(mandateHash(larger), "c7", 1)); got != tooExpensive {
		t.Errorf("a new version spends anew: %s", got)
	}
	if got := evaluated(buy("c7", 1)); got != "denied mandate_not_found" {
		t.Errorf("the old version: %s", got)
	}

	s.run(t, "mandate", "revoke", id, "--reason", "lost phone", "--author", "ada").want(t, 0)
	eventually(t, "it is revoked", func() error {
		a := buyUnder(mandateHash(larger), "c8", 0)
		if got := evaluated(a); got != "denied mandate_revoked" {
			return errorf("%s", got)
		}
		return nil
	})
	again := s.run(t, "mandate", "put", mandateFile(t, larger)).want(t, 0)
	if !strings.Contains(again.err, "mandate_revoked") {
		t.Errorf("putting what was revoked is not remarked upon: %s", again.err)
	}
	if got := evaluated(buyUnder(mandateHash(larger), "c8", 0)); got != "denied mandate_revoked" {
		t.Errorf("put again after its revocation: %s", got)
	}

	if out := s.run(t, "mandate", "get", id).want(t, 0).out; out != string(larger.bytes()) {
		t.Errorf("get prints %s", out)
	}
	var history []struct {
		Revision     uint64
		Hash, Author string
		Revoked      *struct{ Reason string }
	}
	ok(t, json.Unmarshal([]byte(s.run(t, "mandate", "history", id, "--json").want(t, 0).out), &history))
	if len(history) != 2 || history[0].Hash != hash || history[0].Author != "ada" || history[1].Revoked == nil || history[1].Revoked.Reason != "lost phone" {
		t.Errorf("history %+v", history)
	}
	if out := s.run(t, "mandate", "get", id, "--revision", itoa(history[0].Revision)).want(t, 0).out; out != string(m.bytes()) {
		t.Errorf("the first revision is %s", out)
	}

	// AUMP's own evidence of what was done under a mandate that is revoked.
	done := object{"aump": object{"version": "0.1.0", "type": "evidence_event"}, "id": "aump_ev_late", "mandate_ref": object{"id": id, "hash": mandateHash(larger), "version": "0.1.0"},
		"sequence": 1, "created_at": time.Now().Add(time.Minute).UTC().Format(time.RFC3339), "event_type": "deal_accepted", "summary": "Tea.", "result": "allowed",
		"actor": object{"role": "runtime", "id": "kitchen"}, "privacy": object{"retention": "hashes", "contains_private_fields": false}}
	s.run(t, "publish", "--protocol", "aump", "--session", sess, mandateFile(t, done)).want(t, 0)
	eventually(t, "evidence under a revoked mandate is found", func() error {
		if out := s.run(t, "findings", "--session", sess, "--json").out; !strings.Contains(out, "AUMP-E-004") {
			return errorf("%s", out)
		}
		return nil
	})
	eventually(t, "every change is evidence", func() error {
		var changes []string
		for _, c := range evidence(t, db, "kind = 'control' AND subject = 'gov.control.GOV.mandate'") {
			for _, step := range asObjects(c.body(t)["changes"]) {
				if step["mandate_id"] == id {
					changes = append(changes, step["change"].(string))
				}
			}
		}
		if !slices.Equal(changes, []string{"put", "put", "revoked"}) {
			return errorf("%v", changes)
		}
		return nil
	})
}

func itoa(n uint64) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func asObjects(v any) (list []map[string]any) {
	items, _ := v.([]any)
	for _, i := range items {
		if m, is := i.(map[string]any); is {
			list = append(list, m)
		}
	}
	return list
}

// TestMandatePutRefuses: what is no mandate, or is not signed as the tenant
// wants it, is not put.
func TestMandatePutRefuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	good := shopping("aump_mnd_" + strings.ReplaceAll(uuid.NewString(), "-", ""))
	keys := file("keys.json", `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"no JSON", []string{"put", file("a.json", "{")}, "schema_invalid"},
		{"no mandate", []string{"put", file("b.json", `{"id":"aump_mnd_1"}`)}, "schema_invalid"},
		{"broken", []string{"put", mandateFile(t, good.with("authority.mode", "free"))}, "schema_invalid"},
		{"no such mandate", []string{"get", "aump_mnd_unheard_of"}, "aump_mnd_unheard_of"},
		{"no id", []string{"get", "../../x"}, "not the id"},
		{"nothing to revoke", []string{"revoke", "aump_mnd_unheard_of", "--reason", "x"}, "aump_mnd_unheard_of"},
		{"no reason", []string{"revoke", good.text("id")}, "--reason"},
		{"no keys", []string{"keys", "put", file("c.json", `{"keys":[{"kty":"RSA"}]}`)}, "key 1"},
		{"a private key", []string{"keys", "put", file("d.json", `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"AA","d":"AA"}]}`)}, "private"},
	} {
		r := s.run(t, append([]string{"mandate"}, tc.args...)...)
		if r.code == 0 || !strings.Contains(r.err, tc.says) || strings.Contains(r.out, "in force") {
			t.Errorf("%s: exit %d, %s%s", tc.name, r.code, r.out, r.err)
		}
	}
	if out := s.run(t, "mandate", "list").want(t, 0).out; !strings.Contains(out, "no mandate") {
		t.Errorf("after nothing was put: %s", out)
	}
	late := good.with("expires_at", "2026-01-01T00:00:00Z")
	if r := s.run(t, "mandate", "put", mandateFile(t, late)).want(t, 0); !strings.Contains(r.err, "mandate_expired") {
		t.Errorf("an expired mandate is not remarked upon: %s", r.err)
	}
	if out := s.run(t, "mandate", "list").want(t, 0).out; !strings.Contains(out, "  expired\n") || strings.Contains(out, "in force") {
		t.Errorf("an expired mandate is listed as %s", out)
	}
	s.run(t, "mandate", "put", mandateFile(t, good)).want(t, 0)
	s.run(t, "mandate", "keys", "put", keys, "--signatures", "required").want(t, 0)
	if r := s.run(t, "mandate", "put", mandateFile(t, good.with("purpose.intent", "More tea."))); r.code == 0 || !strings.Contains(r.err, "signature_invalid") {
		t.Errorf("unsigned: exit %d, %s", r.code, r.err)
	}
	eventually(t, "unsigned mandates are not accepted any more", func() error {
		a := s.runtime(t).admit(t, "aump", underMandate(good.text("id"), mandateHash(good), purchase(1)))
		if got := evaluated(a); got != "denied signature_invalid" {
			return errorf("%s", got)
		}
		return nil
	})
	if out := s.run(t, "mandate", "keys", "get", "--json").want(t, 0).out; !strings.Contains(out, `"keys":["k1"],"signatures":"required"`) {
		t.Errorf("keys get: %s", out)
	}
}

package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const courierID = "aump_mnd_parcels_1"

// putCourier puts the courier's mandate under an id for a principal, as an operator does, and returns its hash.
func (r *rig) putCourier(tenant, id, principal string) string {
	r.tb.Helper()
	text := strings.Replace(string(example(r.tb, "mandates/courier.json")), `"display_name": "Shipping"`, `"display_name": "Shipping", "subject": "`+principal+`"`, 1)
	text = strings.Replace(text, courierID, id, 1)
	m, err := mandate.Compile([]byte(text), nil)
	servicetest.OK(r.tb, err)
	body, err := json.Marshal(mandate.StoredMandate{V: mandate.StoredVersion, ID: id, Hash: m.Hash, Mandate: text, Author: "ada", PutAt: events.At(time.Now())})
	servicetest.OK(r.tb, err)
	r.put(streams.BucketMandates, mandate.Key(tenant, id), body)
	return m.Hash
}

// askMandates asks on NATS as a user, in the name of a publisher if there is one.
func (r *rig) askMandates(user, publisher, request string) (body string) {
	r.tb.Helper()
	msg := nats.NewMsg("gov.mandates.acme")
	msg.Data = []byte(request)
	if publisher != "" {
		msg.Header[events.HeaderPublisher] = []string{publisher}
	}
	reply, err := r.nats.Conn(user).RequestMsgWithContext(r.tb.Context(), msg)
	servicetest.OK(r.tb, err)
	return string(reply.Data)
}

// The principal of a mandate is shown it and revokes it, over NATS and over HTTP with the same answers; no
// other user does, and the answers to others do not tell that it exists. A revocation is what an operator writes.
func TestMandatesOfPrincipals(t *testing.T) {
	r := startAAEP(t)
	hash, other := r.putCourier("acme", courierID, "sam"), r.putCourier("acme", "aump_mnd_others", "dana")
	r.putCourier("globex", "aump_mnd_globex", "sam")
	r.putCourier("acme", "aump_mnd_runtime", servicetest.Runtime)
	r.putCourier("acme", "aump_mnd_nobody", "")
	r.admitter()
	r.addToken("rt1-as-subscriber", "acme", "lou", "runtime", time.Hour) // lou is registered nowhere
	const path = "/aump/mandates/"
	post := func(who, target, body string) (int, string) {
		res, out := r.do("POST", path+target, who, []byte(body))
		return res.StatusCode, string(out)
	}
	servicetest.Eventually(t, "the tokens are known", func() bool { status, _ := post("rt1-as-subscriber", "x:present", ``); return status != 401 })

	for action, want := range map[string]int{"present": 404, "revoke": 400, "evaluateAction": 403} { // as curl -X POST sends it
		bare := r.connect("POST " + path + "aump_mnd_none:" + action + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.tokens["subscriber"] + "\r\nContent-Length: 0\r\n\r\n")
		if status, _, body := bare.answer(); status != want {
			t.Errorf("%s without a body: %d %s", action, status, body)
		}
	}
	status, unknown := post("subscriber", "aump_mnd_none:revoke", `{"reason":"x"}`)
	if status != 404 {
		t.Errorf("an unknown mandate: %d %s", status, unknown)
	}
	for _, c := range []struct {
		name, who, target, body string
		status                  int
	}{
		{"of another principal", "subscriber", "aump_mnd_others:revoke", `{"reason":"x"}`, 404},
		{"of another principal, by its hash", "subscriber", "aump_mnd_others:revoke", `{"reason":"x","mandate_ref":{"id":"aump_mnd_others","hash":"` + other + `"}}`, 404},
		{"of another tenant", "subscriber", "aump_mnd_globex:revoke", `{"reason":"x"}`, 404},
		{"of no principal", "subscriber", "aump_mnd_nobody:revoke", `{"reason":"x"}`, 404},
		{"a publisher of another's", "runtime", courierID + ":revoke", `{"reason":"x"}`, 404},
		{"shown to a publisher", "runtime", courierID + ":present", ``, 404},
		{"no id", "subscriber", "%3A%3Arevoke", `{"reason":"x"}`, 404},
		{"a wildcard", "subscriber", "*:revoke", `{"reason":"x"}`, 404},
		{"a user who does not come through here", "rt1-as-subscriber", courierID + ":present", ``, 403},
		{"a reviewer's role", "reviewer", courierID + ":revoke", `{"reason":"x"}`, 403},
		{"no reason", "subscriber", courierID + ":revoke", `{}`, 400},
		{"a blank reason", "subscriber", courierID + ":revoke", `{"reason":"  "}`, 400},
		{"a long reason", "subscriber", courierID + ":revoke", `{"reason":"` + strings.Repeat("x", 513) + `"}`, 400},
		{"two reasons", "subscriber", courierID + ":revoke", `{"reason":"x","reason":"y"}`, 400},
		{"an action in the body", "subscriber", courierID + ":present", `{"action":"revoke","reason":"x"}`, 400},
		{"no UTF-8", "subscriber", courierID + ":revoke", "{\"reason\":\"\xff\"}", 400},
		{"no object", "subscriber", courierID + ":revoke", `[]`, 400},
		{"another id in the body", "subscriber", courierID + ":revoke", `{"reason":"x","mandate_ref":{"id":"aump_mnd_others"}}`, 400},
		{"no hash", "subscriber", courierID + ":revoke", `{"reason":"x","mandate_ref":{"hash":"sha256-1"}}`, 400},
		{"another hash", "subscriber", courierID + ":revoke", `{"reason":"x","mandate_ref":{"hash":"sha256-` + strings.Repeat("0", 64) + `"}}`, 409},
		{"a subscriber asks for a verdict", "subscriber", courierID + ":evaluateAction", `{}`, 403},
		{"a subscriber stores evidence", "subscriber", courierID + ":appendEvidence", `{}`, 403},
	} {
		got, body := post(c.who, c.target, c.body)
		if got != c.status || got == 404 && c.target != "%3A%3Arevoke" && body != unknown {
			t.Errorf("%s: %d %s", c.name, got, body)
		}
	}
	for _, key := range r.keysOf(streams.BucketMandates) {
		if strings.Contains(key, ".revoked") {
			t.Fatalf("%s was written", key)
		}
	}
	// A gateway that was taken over asks for those that are reached through it alone.
	for _, publisher := range []string{"dana", "lou", "", "rt2"} {
		if got := r.askMandates(servicetest.Gateway, publisher, `{"action":"present","mandate_ref":{"id":"aump_mnd_others"}}`); !strings.Contains(got, aump.PrincipalRefused) {
			t.Errorf("the gateway as %q: %s", publisher, got)
		}
	}

	status, shown := post("subscriber", courierID+":present", ``)
	if status != 200 || !strings.Contains(shown, hash) || !strings.Contains(shown, `"usable":true`) || strings.Contains(shown, "preferences") {
		t.Errorf("present: %d %s", status, shown)
	}
	for _, id := range []string{"aump_mnd_runtime", "aump_mnd_others", "aump_mnd_none"} {
		for _, members := range []string{``, `,"mandate_ref":{"hash":"x"}`, `,"more":1`} {
			body := r.askMandates(servicetest.Runtime, "sam", fmt.Sprintf(`{"action":"present","mandate_ref":{"id":%q}%s}`, id, members))
			if _, web := post("runtime", id+":present", `{"mandate_ref":{"id":"`+id+`"}`+members+`}`); web != body && !strings.Contains(web, aump.PrincipalInvalid) {
				t.Errorf("%s %s: %s over HTTP, %s over NATS", id, members, web, body)
			}
		}
	}
	if got := r.askMandates(servicetest.Runtime, "", `{"action":"revoke","mandate_ref":{"id":"aump_mnd_runtime"},"reason":"done"}`); !strings.Contains(got, `"author":"principal `+servicetest.Runtime+`"`) {
		t.Errorf("revoked on NATS: %s", got)
	}

	status, revoked := post("subscriber", courierID+":revoke", `{"reason":"the parcels are gone","mandate_ref":{"hash":"`+strings.ToUpper(hash[7:])+`"}}`)
	if status != 400 {
		t.Errorf("a hash without its algorithm: %d %s", status, revoked)
	}
	status, revoked = post("subscriber", courierID+":revoke", `{"reason":"the parcels are gone","mandate_ref":{"hash":"`+hash+`"}}`)
	author := "principal sam through " + servicetest.Gateway
	if status != 200 || !strings.Contains(revoked, author) {
		t.Fatalf("revoke: %d %s", status, revoked)
	}
	if _, again := post("subscriber", courierID+":revoke", `{"reason":"another"}`); again != revoked {
		t.Errorf("revoked again: %s", again)
	}
	if _, shown = post("subscriber", courierID+":present", ``); !strings.Contains(shown, `"usable":false`) {
		t.Errorf("present: %s", shown)
	}
	// The bucket holds what an operator's revocation is, and the log says who revoked.
	held, err := streams.KVLast(t.Context(), r.nats.JS("operator"), streams.BucketMandates, mandate.PrincipalRevocationKey("acme", courierID, hash))
	servicetest.OK(t, err)
	stored, err := events.DecodeRecord[mandate.Revocation](held.Value)
	servicetest.OK(t, err)
	if stored.V != mandate.StoredVersion || stored.Author != author || stored.Reason != "the parcels are gone" {
		t.Errorf("stored: %+v", stored)
	}
	if by := r.revokerOf(courierID, author); by != mandate.ByPrincipal {
		t.Errorf("the log says that it was revoked by %q", by)
	}
	// An operator can write the author's name, and is told apart all the same.
	forged, err := json.Marshal(mandate.Revocation{V: mandate.StoredVersion, ID: "aump_mnd_others", Hash: hash, Reason: "x", Author: author, By: mandate.ByPrincipal})
	servicetest.OK(t, err)
	r.put(streams.BucketMandates, mandate.RevocationKey("acme", "aump_mnd_others", hash), forged)
	servicetest.Eventually(t, "the operator's revocation is on the log", func() bool { return r.revokerOf("aump_mnd_others", author) == mandate.ByOperator })
	request := fmt.Sprintf(`{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":%q,"hash":%q,"version":"0.1.0"},"proposed_action":{"type":"request_quote","summary":"x"}}`, courierID, hash)
	if status, body := post("runtime", courierID+":evaluateAction", request); status != 410 || !strings.Contains(body, "mandate_revoked") {
		t.Errorf("an action under it: %d %s", status, body)
	}
}

// The answer to a request that may not know of a mandate, and its record, are those for a mandate that does not
// exist: over NATS and over HTTP, with another hash than the mandate's, and with its hash from a publisher that is
// registered for other agents.
func TestEvaluationTellsOfNoMandate(t *testing.T) {
	r := start(t)
	hash := r.putCourier("acme", courierID, "sam")
	r.admitter()
	nc, other := r.nats.Conn(servicetest.Runtime), "sha256-"+strings.Repeat("0", 64)
	call := nats.Header{events.HeaderSession: {"s-1"}, events.HeaderToolCallID: {"c-1"}}
	// ask is the answer and its record, without the mandate's name and what differs between any two decisions.
	ask := func(id, hash string) (status int, all string) {
		body := fmt.Appendf(nil, `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":%q,"hash":%q,"version":"0.1.0"},"proposed_action":{"type":"request_quote","summary":"x"}}`, id, hash)
		res, web := r.do("POST", "/aump/mandates/"+id+":evaluateAction", "runtime", body, events.HeaderSession, "s-1", events.HeaderToolCallID, "c-1")
		direct, err := nc.RequestMsgWithContext(t.Context(), &nats.Msg{Subject: "gov.admit.acme.aump", Header: call, Data: body})
		servicetest.OK(t, err)
		parts := []any{slices.Sorted(maps.Keys(res.Header)), slices.Sorted(maps.Keys(direct.Header)), canCompare(t, web), canCompare(t, direct.Data)}
		for _, decision := range []string{res.Header.Get(events.HeaderDecisionID), direct.Header.Get(events.HeaderDecisionID)} {
			record := r.decision(decision)
			d, err := json.Marshal(record)
			servicetest.OK(t, err)
			known, err := json.Marshal(record.Inputs)
			servicetest.OK(t, err)
			tree := canCompare(t, d).(map[string]any)
			delete(tree, "request_digest") // of another id
			parts = append(parts, tree, string(known))
		}
		return res.StatusCode, strings.ReplaceAll(fmt.Sprint(parts...), id, "ID")
	}
	check := func(what, hash string, same bool) {
		t.Helper()
		status, got := ask(courierID, hash)
		if _, unknown := ask("aump_mnd_parcels_9", hash); same != (got == unknown) || same != (status == 404) {
			t.Errorf("%s: %d %s\nand of an unknown mandate: %s", what, status, got, unknown)
		}
	}
	manifest, err := os.ReadFile("../../../schemas/testdata/corpus/agenthook/publisher-manifest/valid/minimal.json")
	servicetest.OK(t, err)
	register := func(agent string) {
		r.put(streams.BucketPublishers, publisher.Key(servicetest.Tenant, "registration."+servicetest.Runtime+".example.parcels.hooks"), fmt.Appendf(nil,
			`{"schema": "https://schemas.countersign.dev/countersign/publisher-registration/v1", "publisher": %q, "gateway": %q, "agents": [%q], "manifest": %s}`,
			servicetest.Runtime, servicetest.Gateway, agent, manifest))
	}
	servicetest.Eventually(t, "the mandate is in force", func() bool { status, _ := ask(courierID, hash); return status == 200 })
	check("with its hash", hash, false)
	check("with another hash", other, true)
	register("another-agent")
	servicetest.Eventually(t, "the registration counts", func() bool { status, _ := ask(courierID, hash); return status == 404 })
	check("with its hash, registered for another agent", hash, true)
	register("agent-parcels")
	servicetest.Eventually(t, "the registration counts", func() bool { status, _ := ask(courierID, hash); return status == 200 })
	check("with another hash, registered for its agent", other, false)
}

// revokerOf is the kind of author of a mandate's revocation on the log; "" without one by an author.
func (r *rig) revokerOf(id, author string) (by string) {
	r.tb.Helper()
	for _, m := range r.nats.Log() {
		c, err := events.DecodeRecord[events.MandateChange](m.Body)
		if !strings.HasSuffix(m.Subject, "."+events.ControlMandate) || err != nil {
			continue
		}
		for _, s := range c.Changes {
			if s.Change == mandate.ChangeRevoked && s.MandateID == id && s.Author == author {
				by = s.By
			}
		}
	}
	return by
}

func (r *rig) keysOf(bucket string) []string {
	r.tb.Helper()
	keys, err := streams.KVKeys(r.tb.Context(), r.nats.JS("operator"), bucket)
	servicetest.OK(r.tb, err)
	return keys
}

package admitter

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const courierID = "aump_mnd_courier_01"

// courier is a mandate over EUR 10.00 that is valid now; replacements alternate
// with what they replace.
func courier(tb testing.TB, replace ...string) (raw []byte, hash string) {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "schemas", "testdata", "corpus", "aump", "mandate", "valid", "minimal.json"))
	servicetest.OK(tb, err)
	now := time.Now().UTC()
	text := strings.NewReplacer(append(replace, "2026-11-20T08:00:00Z", now.Add(-time.Hour).Format(time.RFC3339),
		"2026-11-21T08:00:00Z", now.Add(time.Hour).Format(time.RFC3339), "20000", "1000")...).Replace(string(b))
	doc, err := wire.DecodeMandate([]byte(text), strictjson.DefaultLimits)
	servicetest.OK(tb, err)
	hash, err = wire.MandateHash(doc.Tree())
	servicetest.OK(tb, err)
	return []byte(text), hash
}

// store puts a mandate into the bucket as an operator does.
func store(tb testing.TB, n *servicetest.NATS, tenant string, raw []byte, hash string) {
	tb.Helper()
	keep(tb, n, mandate.Key(tenant, courierID), mandate.StoredMandate{
		V: mandate.StoredVersion, ID: courierID, Hash: hash, Mandate: string(raw), Author: "ada", PutAt: events.At(time.Now()),
	})
}

func keep(tb testing.TB, n *servicetest.NATS, key string, doc any) {
	tb.Helper()
	b, err := json.Marshal(doc)
	servicetest.OK(tb, err)
	_, err = bucket(tb, n, "operator", streams.BucketMandates).Put(tb.Context(), key, b)
	servicetest.OK(tb, err)
}

// booking is a request for one action; amount 0 is none.
func booking(hash string, amount int) []byte {
	money := ""
	if amount > 0 {
		money = fmt.Sprintf(`,"amount":{"currency":"EUR","total_minor":%d}`, amount)
	}
	return []byte(`{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"` + courierID + `","hash":"` + hash +
		`","version":"0.1.0"},"proposed_action":{"type":"book_courier","summary":"Book a van."` + money + `}}`)
}

// evaluation is the part of a reply that tests look at.
type evaluation struct {
	Ref struct {
		Hash string `json:"hash"`
	} `json:"mandate_ref"`
	Decision string   `json:"decision"`
	Codes    []string `json:"reason_codes"`
}

func (e evaluation) String() string {
	return strings.TrimSpace(e.Decision + " " + strings.Join(e.Codes, " "))
}

// propose asks for one action under a call id, "" for none.
func propose(tb testing.TB, nc *nats.Conn, body []byte, call string) (e evaluation) {
	tb.Helper()
	header := []string{events.HeaderSession, "s1"}
	if call != "" {
		header = append(header, events.HeaderToolCallID, call)
	}
	servicetest.OK(tb, json.Unmarshal(ask(tb, nc, "gov.admit.acme.aump", body, header...).Data, &e))
	return e
}

// evaluators puts the policy in force under which AUMP's own evaluator decides.
func evaluators(tb testing.TB, n *servicetest.NATS) {
	tb.Helper()
	put(tb, n, "evaluators", []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: other\nspec:\n  match:\n"+
		"    tools: [\"unheard_of\"]\n  rules:\n    - name: r\n      when: 'true'\n      verdict: deny\n      reason: x\n"))
}

// becomes asks until the answer is as expected.
func becomes(tb testing.TB, want string, f func() evaluation) {
	tb.Helper()
	var got evaluation
	for end := time.Now().Add(servicetest.Guard); ; time.Sleep(2 * time.Millisecond) {
		if got = f(); got.String() == want {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s, want %s", got, want)
		}
	}
}

func TestMandatesAreFollowed(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	evaluators(t, n)
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	raw, hash := courier(t)
	quote := func() evaluation { return propose(t, nc, booking(hash, 0), "") }
	if got := quote().String(); got != "denied mandate_not_found" {
		t.Error(got)
	}
	store(t, n, "globex", raw, hash)
	store(t, n, "acme", raw, hash)
	becomes(t, "allowed", quote)
	if got := propose(t, nc, booking("sha256-"+strings.Repeat("0", 64), 0), ""); got.String() != "denied mandate_not_found" || got.Ref.Hash == hash {
		t.Error(got)
	}

	// A newer version under the same id takes the place of the older one.
	young, youngHash := courier(t, "Short.", "Shorter.")
	store(t, n, "acme", young, youngHash)
	becomes(t, "denied mandate_not_found", quote)
	becomes(t, "allowed", func() evaluation { return propose(t, nc, booking(youngHash, 0), "") })
	store(t, n, "acme", raw, hash)
	becomes(t, "allowed", quote)

	// What was revoked stays so, put again or not.
	keep(t, n, mandate.RevocationKey("acme", courierID, hash), mandate.Revocation{V: 1, ID: courierID, Hash: hash, Reason: "lost", Author: "ada"})
	becomes(t, "denied mandate_revoked", quote)
	store(t, n, "acme", raw, hash)
	keep(t, n, mandate.KeysKey("acme"), mandate.SigningKeys{V: 1, Keys: []map[string]any{}, Signatures: mandate.SignaturesRequired})
	becomes(t, "denied signature_invalid mandate_revoked", quote)

	keep(t, n, mandate.KeysKey("acme"), mandate.SigningKeys{V: 1, Keys: []map[string]any{}})
	store(t, n, "acme", young, youngHash)
	becomes(t, "allowed", func() evaluation { return propose(t, nc, booking(youngHash, 0), "") })
	keep(t, n, mandate.Key("acme", courierID), map[string]any{"raw": true})
	becomes(t, "denied mandate_not_found", quote) // what cannot be read

	changes := map[string]int{}
	var recorded bool
	for _, m := range n.Log() {
		if m.Subject == "gov.control.GOV.mandate" {
			c, err := events.DecodeRecord[events.MandateChange](m.Body)
			servicetest.OK(t, err)
			for _, s := range c.Changes {
				changes[s.Tenant+" "+s.Change]++
				recorded = recorded || s.Hash == hash
			}
			if strings.Contains(string(m.Body), "Book couriers") {
				t.Error("the record holds the mandate")
			}
		}
		if m.Subject == "gov.decisions.acme.allow.s1" && !recorded {
			t.Error("a decision under a mandate that is not in the log yet")
		}
	}
	if changes["acme put"] < 4 || changes["acme revoked"] != 1 || changes["acme keys"] != 2 || changes["globex put"] != 1 {
		t.Error(changes)
	}
	n.CheckLinked(events.ControlMandate)
}

// TestMandatesAfterAnOutage: what changed while the server could not be reached
// is known as soon as it can.
func TestMandatesAfterAnOutage(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	evaluators(t, n)
	raw, hash := courier(t)
	store(t, n, "acme", raw, hash)
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	becomes(t, "allowed", func() evaluation { return propose(t, nc, booking(hash, 0), "") })
	n.Stop()
	n.Restart()
	keep(t, n, mandate.RevocationKey("acme", courierID, hash), mandate.Revocation{V: 1, ID: courierID, Hash: hash})
	again := n.Conn(servicetest.Runtime)
	servicetest.Eventually(t, "the revocation counts", func() bool {
		m := nats.NewMsg("gov.admit.acme.aump")
		m.Data = booking(hash, 0)
		reply, err := again.RequestMsg(m, time.Second)
		return err == nil && strings.Contains(string(reply.Data), "mandate_revoked")
	})
	s.Running()
}

// TestMandatesBetweenTwoAdmitters: what is put or revoked while no admitter runs is on record once the next one runs, and what was
// on record before is not recorded again.
func TestMandatesBetweenTwoAdmitters(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	evaluators(t, n)
	raw, hash := courier(t)
	steps := func() (list []string) {
		for _, m := range n.Log() {
			if m.Subject != "gov.control.GOV.mandate" {
				continue
			}
			c, err := events.DecodeRecord[events.MandateChange](m.Body)
			servicetest.OK(t, err)
			for _, s := range c.Changes {
				list = append(list, s.Tenant+" "+s.Change+" "+s.By)
			}
		}
		return list
	}
	want := []string{"acme put "}
	for _, change := range []func(){
		func() { store(t, n, "acme", raw, hash) },
		func() {},
		func() {
			keep(t, n, mandate.RevocationKey("acme", courierID, hash), mandate.Revocation{V: 1, ID: courierID, Hash: hash})
			want = append(want, "acme revoked operator")
		},
	} {
		change()
		servicetest.OK(t, serve(t, n).Stop())
		if got := steps(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTrackedViewSeesWhatVanished(t *testing.T) {
	got := map[string]bucketEntry{}
	v := &trackedView{progress: newProgress(), known: map[string]knownEntry{}}
	v.apply = func(_ context.Context, changed map[string]bucketEntry, _ uint64) {
		for k, e := range changed {
			got[k] = e
		}
	}
	v.replaceAll(t.Context(), bucketRead{entries: map[string]bucketEntry{"a": {[]byte("1"), 1}, "b": {[]byte("2"), 2}}, revision: 2})
	clear(got)
	v.replaceAll(t.Context(), bucketRead{entries: map[string]bucketEntry{"b": {[]byte("2"), 2}, "c": {[]byte("3"), 3}}, revision: 3})
	keys := []string{}
	for k, e := range got {
		keys = append(keys, k+string(e.value))
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"a", "c3"}) || v.reported != 3 {
		t.Error(keys, v.reported)
	}
	// A bucket that was made anew counts from one again.
	clear(got)
	v.replaceAll(t.Context(), bucketRead{entries: map[string]bucketEntry{"b": {[]byte("other"), 2}}, revision: 2})
	if string(got["b"].value) != "other" || got["c"].value != nil || v.reported != 2 {
		t.Error(got, v.reported)
	}
}

// TestMandatesAfterAKilledStart: an admitter is killed after the first of several records of what changed while none ran. The next
// one records the rest.
func TestMandatesAfterAKilledStart(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	evaluators(t, n)
	values, revision := map[string][]byte{}, uint64(0)
	for i := range maxSteps + 1 {
		hash := fmt.Sprintf("sha256-%064x", i)
		key := mandate.RevocationKey("acme", courierID, hash)
		body, err := json.Marshal(mandate.Revocation{V: 1, ID: courierID, Hash: hash})
		servicetest.OK(t, err)
		revision, err = bucket(t, n, "operator", streams.BucketMandates).Put(t.Context(), key, body)
		servicetest.OK(t, err)
		values[key] = body
	}
	ms := newMandateStore(unstarted(t, n))
	next, changes := ms.store.Load().WithChanges(values)
	parts := ms.changeRecords(next, changes, revision)
	if len(parts) != 2 || parts[1].Revision != revision {
		t.Fatalf("%d records, the last of revision %d", len(parts), parts[len(parts)-1].Revision)
	}
	servicetest.OK(t, ms.changes.writeChange(t.Context(), pendingChange{"part-1", time.Now(), parts[0]}))
	for range 2 {
		servicetest.OK(t, serve(t, n).Stop())
	}
	recorded := map[string]int{}
	for _, m := range of(n.Log(), "gov.control.GOV.mandate") {
		c, err := events.DecodeRecord[events.MandateChange](m.Body)
		servicetest.OK(t, err)
		for _, s := range c.Changes {
			recorded[s.Hash]++
		}
	}
	if len(recorded) != len(values) {
		t.Errorf("%d of %d revocations are on record", len(recorded), len(values))
	}
	for hash, n := range recorded {
		if n > 2 {
			t.Fatalf("%s is on record %d times: the second start recorded it again", hash, n)
		}
	}
}

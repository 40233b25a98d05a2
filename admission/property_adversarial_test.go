package admission

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// drawProposal draws a valid request of any protocol, perhaps changed somewhere.
func drawProposal(t *rapid.T, m *mandate.Mandate) (proposal, string) {
	p := rapid.SampledFrom(proposals(m)).Draw(t, "protocol")
	tree, err := strictjson.Parse([]byte(p.body), strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	body := p.body
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		at := rapid.SampledFrom(pointers(tree, "")).Draw(t, "at")
		mutation := rapid.SampledFrom(mutations).Draw(t, "mutation")
		if f := mutation.of(valueAt(tree, at)); f != nil {
			if b := changed(body, at, f); b != nil {
				body = string(b)
				if tree, err = strictjson.Parse(b, strictjson.DefaultLimits); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return p, body
}

// outcomeBytes is all that leaves the core.
func outcomeBytes(t testing.TB, out Outcome) []byte {
	t.Helper()
	record, err := events.Encode(out.Decision)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := out.Reply()
	if err != nil {
		t.Fatal(err)
	}
	claims, err := json.Marshal(out.Claims)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(record, reply, claims, []byte(out.ErrorDescription))
}

// The same inputs give the same bytes, whatever the order of maps, and the order
// of keys in the request changes nothing that decides.
func TestDecisionsAreDeterministic(t *testing.T) {
	m := courierMandate(t)
	snap := anything(t)
	rapid.Check(t, func(t2 *rapid.T) {
		p, body := drawProposal(t2, m)
		first := p.decide(body, snap, m)
		want := outcomeBytes(t, first)
		for range 3 {
			if again := outcomeBytes(t, p.decide(body, snap, m)); !bytes.Equal(want, again) {
				t2.Fatalf("%s\n%s", want, again)
			}
		}
		turned, err := strictjson.CanonicalBytes([]byte(body))
		if err != nil {
			t2.Skip()
		}
		out := p.decide(string(turned), snap, m)
		if out.Decision.Verdict != first.Decision.Verdict || out.Decision.ArgsDigest != first.Decision.ArgsDigest || out.Claims.ArgsHash != first.Claims.ArgsHash {
			t2.Fatalf("%s in another order: %s", codes(first), codes(out))
		}
	})
}

// A further policy that has a word on a call never makes a verdict looser that
// another one has given, and takes no reason away.
func TestFurtherPoliciesNeverLoosen(t *testing.T) {
	m := courierMandate(t)
	list := []string{"allow a: true", "ask b: true", "defer c: true", "deny d: true", "allow e: false", "deny f: source == 'x'", "allow g: args.nope == 1"}
	rapid.Check(t, func(t2 *rapid.T) {
		p, body := drawProposal(t2, m)
		if p.protocol == "handoff" {
			return // a policy must name handoffs; see package aioc
		}
		chosen := append([]string{rapid.SampledFrom(list[:4]).Draw(t2, "first")}, rapid.SliceOfNDistinct(rapid.SampledFrom(list[4:]), 0, 3, rapid.ID[string]).Draw(t2, "some")...)
		more := append(slices.Clone(chosen), rapid.SampledFrom(list).Draw(t2, "one more"))
		before, after := p.decide(body, rules(t, chosen...), m), p.decide(body, rules(t, more...), m)
		if after.Decision.Verdict.Strictness() < before.Decision.Verdict.Strictness() {
			t2.Fatalf("%v: %s; with %s: %s", chosen, codes(before), more[len(more)-1], codes(after))
		}
		for _, r := range before.Decision.Reasons {
			if !slices.Contains(after.Decision.Reasons, r) && !before.Malformed {
				t2.Fatalf("%s lost %+v: %s", codes(before), r, codes(after))
			}
		}
	})
}

// Consolidating verdicts is a join: commutative, associative, idempotent, with
// allow as its least and deny as its greatest element; and so is joining opinions,
// as far as their verdicts go.
func TestConsolidationIsAJoin(t *testing.T) {
	join := func(a, b events.Verdict) events.Verdict {
		o := call.Opinion{Verdict: a}
		o.Merge(call.Opinion{Verdict: b})
		if want := events.Strictest(a, b); o.Verdict != want {
			t.Errorf("opinions %s and %s make %s, verdicts %s", a, b, o.Verdict, want)
		}
		return o.Verdict
	}
	for _, a := range events.Verdicts {
		if join(a, a) != a || join(a, events.Allow) != a || join(a, events.Deny) != events.Deny {
			t.Errorf("%s", a)
		}
		for _, b := range events.Verdicts {
			if join(a, b) != join(b, a) {
				t.Errorf("%s and %s", a, b)
			}
			for _, c := range events.Verdicts {
				if join(join(a, b), c) != join(a, join(b, c)) {
					t.Errorf("%s, %s and %s", a, b, c)
				}
			}
		}
	}
	for _, unknown := range []events.Verdict{"", "Allow", "allowed", "ALLOW"} {
		if events.Strictest(events.Allow, unknown) == events.Allow {
			t.Errorf("%q is as good as allow", unknown)
		}
	}
}

// What the service decides, evaluate decides offline, in the same words.
func TestOfflineAgreesWithTheService(t *testing.T) {
	m := courierMandate(t)
	snap := anything(t)
	rapid.Check(t, func(t2 *rapid.T) {
		p, body := drawProposal(t2, m)
		line, err := json.Marshal(map[string]any{"request": json.RawMessage(body), "headers": p.header})
		if err != nil {
			t2.Fatal(err)
		}
		if p.header == nil {
			line = []byte(body)
		}
		var offline OfflineResult
		if err := json.Unmarshal(EvaluateLine(line, Offline{Protocol: p.protocol, Now: noon, Config: snap, Mandates: known{m}, Tenant: "acme", Source: "rt1"}), &offline); err != nil {
			t2.Fatal(err)
		}
		out := p.decide(body, snap, m)
		reply := replyOf(t, out)
		var said map[string]any
		if err := json.Unmarshal(offline.Reply, &said); err != nil {
			t2.Fatal(err)
		}
		if offline.Verdict != out.Decision.Verdict || cmp.Diff(reply["reason"], said["reason"]) != "" || cmp.Diff(reply["reason_codes"], said["reason_codes"]) != "" {
			t2.Fatalf("offline %s, in the service %s: %v %v", offline.Verdict, codes(out), said["reason"], reply["reason"])
		}
	})
}

// Naming a mandate or a contract, and knowing a catalogue, never makes a denied or
// asked call pass, in any protocol.
func TestFurtherEvaluatorsNeverLoosen(t *testing.T) {
	m := courierMandate(t)
	set := desk(t)
	rapid.Check(t, func(t2 *rapid.T) {
		p, body := drawProposal(t2, m)
		snap := gates(t, "verdict: "+string(rapid.SampledFrom(events.Verdicts).Draw(t2, "rule"))+", reason: r")
		decide := func(header map[string][]string, in Inputs) Outcome {
			r := request(p.protocol, body)
			r.Header = maps.Clone(p.header)
			for k, v := range header {
				if r.Header == nil {
					r.Header = map[string][]string{}
				}
				r.Header[k] = v
			}
			return Decide(r, snap, in)
		}
		in := inputs()
		in.Mandates.Mandates = known{m}
		plain := decide(nil, in)
		named := decide(map[string][]string{"Aump-Mandate-Id": {m.ID}, "Aump-Mandate-Hash": {rapid.SampledFrom([]string{m.Hash, "sha256-00", ""}).Draw(t2, "hash")}}, in)
		in.Publishers = set
		catalogued := decide(nil, in)
		for what, out := range map[string]Outcome{"with a mandate": named, "with a catalogue": catalogued} {
			if out.Decision.Verdict.Strictness() < plain.Decision.Verdict.Strictness() {
				t2.Fatalf("%s: %s, %s: %s", p.protocol, codes(plain), what, codes(out))
			}
		}
	})
}

// Fields that stand next to each other in something that is hashed cannot be moved
// into each other, whatever separators they contain.
func TestAttackSeparatorsInHashedFields(t *testing.T) {
	plain := func(b []byte) string { return digest.Plain(b) }
	field := rapid.StringMatching(`[a/.|:,\x00~"-]{0,3}`)
	rapid.Check(t, func(t2 *rapid.T) {
		a := approval.Action{Tenant: field.Draw(t2, "tenant"), Source: field.Draw(t2, "source"), Session: field.Draw(t2, "session"), Tool: field.Draw(t2, "tool"),
			Action: field.Draw(t2, "action"), Kind: field.Draw(t2, "kind"), Scope: field.Draw(t2, "scope"), Call: field.Draw(t2, "call"), Args: []byte("{}")}
		b := a
		list := []*string{&b.Tenant, &b.Source, &b.Session, &b.Tool, &b.Action, &b.Kind, &b.Scope, &b.Call}
		i := rapid.IntRange(0, len(list)-2).Draw(t2, "from")
		joined := *list[i] + *list[i+1]
		cut := rapid.IntRange(0, len(joined)).Draw(t2, "cut")
		*list[i], *list[i+1] = joined[:cut], joined[cut:]
		ka, err := approval.KeysOf(a, plain)
		kb, err2 := approval.KeysOf(b, plain)
		if err != nil || err2 != nil {
			t2.Fatal(err, err2)
		}
		same := cmp.Equal(a, b)
		if (ka.CallSlot == kb.CallSlot) != same {
			t2.Fatalf("%+v and %+v have one key", a, b)
		}
		if approval.StoreKey(a.Tenant, a.Session) == approval.StoreKey(b.Tenant, b.Session) && a.Tenant != b.Tenant {
			t2.Fatalf("tenants %q and %q share a key", a.Tenant, b.Tenant)
		}
		pa := mandate.Proposal{Tenant: a.Tenant, Source: a.Source, Session: a.Session, ToolCallID: a.Call + "x", Action: []byte(a.Tool)}
		pb := mandate.Proposal{Tenant: b.Tenant, Source: b.Source, Session: b.Session, ToolCallID: b.Call + "x", Action: []byte(b.Tool)}
		if pa.Key([]byte("k")) == pb.Key([]byte("k")) && !cmp.Equal(pa, pb) {
			t2.Fatalf("%+v and %+v have one key", pa, pb)
		}
	})
	// Counters, by what a call says of itself.
	keys := map[string]string{}
	snap := compiled(t, strings.NewReplacer("\t", "").Replace(`
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: p}
spec: {rules: [{name: ok, when: "true", verdict: allow, reason: ok}, {name: many, when: "true", limit: {max: 1, per: 1m, by: [session, agent]}, verdict: deny, reason: many}]}
`))
	for _, who := range [][2]string{{"a/b", "c"}, {"a", "b/c"}, {"a/b/c", ""}, {"", "a/b/c"}, {"a\x00b", "c"}, {"a", "\x00b\x00c"}, {"agent", "a"}} {
		counts := snap.Policies.Evaluate(policy.Input{Tenant: "acme", Source: "rt1", Protocol: agenthook.Name, Tool: "t", Session: who[0], Agent: who[1], Now: noon, Counters: policy.NoCounts{}}).Counts
		if len(counts) != 1 {
			t.Fatalf("%+v", counts)
		}
		if other, taken := keys[counts[0].Key]; taken {
			t.Errorf("%q shares the counter of %s", who, other)
		}
		keys[counts[0].Key] = strings.Join(who[:], "|")
	}
}

package replay

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/examples"
)

var now = time.Date(2026, 11, 20, 9, 0, 0, 123_456_789, time.UTC)

const rules = `apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: p}
spec:
  rules:
    - name: ask
      when: 'tool == "ask"'
      verdict: ask
      reason: asks
    - name: fetch
      when: 'tool in ["fetch", "book_flight"]'
      verdict: allow
      reason: reads
    - name: often
      when: 'tool == "fetch"'
      limit: {max: MAX, per: 1h, by: [source]}
      verdict: deny
      reason: too_often
    - name: known
      when: 'tool == "catalogued"'
      verdict: allow
      reason: reads
`

// snapshot compiles rules after edits.
func snapshot(t testing.TB, edits ...string) *admission.Config {
	t.Helper()
	text := strings.NewReplacer(append(edits, "MAX", "10")...).Replace(rules)
	set, err := policy.Compile([]policy.Document{{Name: "p.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	return &admission.Config{Policies: set, Revision: 7}
}

// total answers every counter.
type total int64

func (n total) Total(string, time.Duration, time.Time) (int64, bool) { return int64(n), n >= 0 }

type said call.Confirmation

func (s said) Confirmation(call.Invocation) call.Confirmation { return call.Confirmation(s) }

// record decides and gives what the log would hold of it.
func record(t testing.TB, protocol, body string, snap *admission.Config, set func(*admission.Inputs)) Record {
	t.Helper()
	in := admission.Inputs{Now: now, DecisionID: "01a1f875-4fa9-7406-990a-133a994cbdf3", Salt: make([]byte, 16), Nonce: "n", TenantKey: []byte("0123456789abcdef0123456789abcdef"),
		Durability: "fsync", KnownTenant: true, Counters: total(0)}
	if set != nil {
		set(&in)
	}
	var header map[string][]string
	if protocol == "tool" || protocol == "aump" { // the others have them in the body
		header = map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}
	}
	req := admission.Request{Tenant: "acme", Source: "rt1", Protocol: protocol, Header: header, Body: []byte(body), ReceivedAt: now}
	out := admission.Decide(req, snap, in)
	b, err := events.Encode(out.Decision)
	if err != nil {
		t.Fatal(err)
	}
	d, err := events.DecodeRecord[events.Decision](b)
	if err != nil {
		t.Fatal(err)
	}
	return Record{Decision: d, Header: header, Body: []byte(body)}
}

func tool(name string) string {
	return `{"agentName":"a","toolName":"` + name + `","parsedArguments":{"to":"hunter2"},"turn":1}`
}

const invocation = `{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.tool.invoked","event_id":"evt_00000000000000000000000000000001",
"session_id":"sess_00000001","sequence_number":0,"timestamp":"2026-11-20T08:59:59Z","producer":{"agent_id":"a"},"urgency":"critical","aaep_version":"1.0.0",
"summary_normal":"Books.","tool":"book_flight","tool_call_id":"call_1","risk_level":"high","irreversible":true}`

func corpus(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "schemas", "testdata", "corpus", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func courier(t testing.TB) *mandate.Mandate {
	t.Helper()
	m, err := mandate.Compile(corpus(t, "aump/mandate/valid/minimal.json"), nil)
	if err != nil || m.Violations != nil {
		t.Fatal(err, m)
	}
	return m
}

func booking(m *mandate.Mandate) string {
	return `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"aump_mnd_courier_01","hash":"` + m.Hash + `","version":"0.1.0"},` +
		`"proposed_action":{"type":"book_courier","summary":"hunter2-secret","amount":{"currency":"EUR","total_minor":1500}}}`
}

// ledger answers about one mandate.
type ledger struct {
	m       *mandate.Mandate
	spend   mandate.Spend
	facts   mandate.PrincipalConsent
	revoked bool
}

func (l ledger) Mandate(_, id, _ string) *mandate.Mandate {
	if id != l.m.ID {
		return nil
	}
	return l.m
}
func (l ledger) Revoked(string, string, string) bool               { return l.revoked }
func (l ledger) Spend(mandate.Proposal) mandate.Spend              { return l.spend }
func (l ledger) Consent(mandate.Proposal) mandate.PrincipalConsent { return l.facts }
func (l ledger) records(p mandate.SignaturePolicy) mandate.Records {
	return mandate.Records{Mandates: l, Revocations: l, SpendLedger: l, Approvals: l, Signatures: p}
}

// Every decision that is made from inputs that the record names is made again
// from the record: the same verdict, the same reasons.
func TestSameInputsSameDecision(t *testing.T) {
	m := courier(t)
	example, err := examples.FS.ReadFile("requests/pre-tool-use.json")
	if err != nil {
		t.Fatal(err)
	}
	under := func(l ledger, p mandate.SignaturePolicy) func(*admission.Inputs) {
		return func(in *admission.Inputs) { in.Mandates = l.records(p) }
	}
	spent := mandate.Spend{Reserved: 1 << 40}
	for _, c := range []struct {
		name, protocol, body string
		set                  func(*admission.Inputs)
		want                 events.Verdict
	}{
		{"allow", "tool", tool("fetch"), nil, events.Allow},
		{"ask", "tool", tool("ask"), nil, events.Ask},
		{"no match", "tool", tool("unheard"), nil, events.Deny},
		{"an event", "agenthook", string(example), nil, events.Deny},
		{"below the limit", "tool", tool("fetch"), func(in *admission.Inputs) { in.Counters = total(9) }, events.Allow},
		{"beyond the limit", "tool", tool("fetch"), func(in *admission.Inputs) { in.Counters = total(10) }, events.Deny},
		{"the limit's count is not known", "tool", tool("fetch"), func(in *admission.Inputs) { in.Counters = total(-1) }, events.Deny},
		{"not JSON", "agenthook", "{", nil, events.Deny},
		{"empty", "tool", "", nil, events.Deny},
		{"no confirmation", "aaep", invocation, nil, events.Ask},
		{"confirmed", "aaep", invocation, func(in *admission.Inputs) {
			in.Confirmations = said{Status: call.ConfirmationAccepted, ID: "q1", Explicit: true, Until: now.Add(time.Minute)}
		}, events.Allow},
		{"declined", "aaep", invocation, func(in *admission.Inputs) {
			in.Confirmations = said{Status: call.ConfirmationDeclined, Explicit: true}
		}, events.Deny},
		{"understated", "aaep", invocation, func(in *admission.Inputs) {
			in.Confirmations = said{Status: call.ConfirmationAccepted, ID: "q1", Explicit: true, Understated: true}
		}, events.Ask},
		{"mandate", "aump", booking(m), under(ledger{m: m}, mandate.SignaturesAuto), events.Allow},
		{"money is gone", "aump", booking(m), under(ledger{m: m, spend: spent}, mandate.SignaturesAuto), events.Deny},
		{"the ledger is full", "aump", booking(m), under(ledger{m: m, spend: mandate.Spend{Full: true}}, mandate.SignaturesAuto), events.Deny},
		{"revoked", "aump", booking(m), under(ledger{m: m, revoked: true}, mandate.SignaturesAuto), events.Deny},
		{"approved", "aump", booking(m), under(ledger{m: m, facts: mandate.PrincipalConsent{Approved: true, TrustedUI: true}}, mandate.SignaturesAuto), events.Allow},
		{"signatures are demanded", "aump", booking(m), under(ledger{m: m}, mandate.SignaturesRequired), events.Deny},
		{"no such mandate", "aump", strings.ReplaceAll(booking(m), "courier_01", "courier_02"), under(ledger{m: m}, mandate.SignaturesAuto), events.Deny},
		{"unknown tenant", "tool", tool("fetch"), func(in *admission.Inputs) { in.KnownTenant = false }, events.Deny},
	} {
		t.Run(c.name, func(t *testing.T) {
			snap := snapshot(t)
			r := record(t, c.protocol, c.body, snap, c.set)
			if r.Decision.Verdict != c.want && c.name != "no such mandate" {
				t.Fatalf("the test decides %s: %v", r.Decision.Verdict, r.Decision.Reasons)
			}
			for _, key := range [][]byte{nil, []byte("0123456789abcdef0123456789abcdef")} {
				got := Decide(r, snap, KnownState{TenantKey: key, Mandate: func(string, string, string) *mandate.Mandate { return m }})
				if diff := Compare(r.Decision, got.Decision); len(diff)+len(got.Unknown) > 0 {
					t.Errorf("differs: %v, unknown: %v", diff, got.Unknown)
				}
			}
		})
	}
}

// The profile and strictness that decided are those that decide again, whatever
// the snapshot says.
func TestStrictAndProfileAreOfTheRecord(t *testing.T) {
	snap := snapshot(t)
	body := strings.Replace(invocation, `"irreversible":true`, `"irreversible":false`, 1)
	lax := *snap
	lax.Profile = admission.ProfileReferenceSDK
	r := record(t, "aaep", body, &lax, nil)
	if r.Decision.Verdict != events.Allow || r.Decision.Inputs == nil {
		t.Fatalf("%+v", r.Decision)
	}
	if diff := Compare(r.Decision, Decide(r, snap, KnownState{}).Decision); len(diff) > 0 {
		t.Error(diff)
	}
	strict := *snap
	strict.Strict = true
	r = record(t, "aaep", body, &strict, nil)
	if diff := Compare(r.Decision, Decide(r, snap, KnownState{}).Decision); len(diff) > 0 {
		t.Error(diff)
	}
}

// The mode that decided is the one that decides again. A candidate is compared with what enforced
// policies gave, on both sides.
func TestModeIsOfTheRecord(t *testing.T) {
	enforcing := snapshot(t)
	observing := *enforcing
	observing.Observed = map[string]bool{"acme": true}
	denied, allowed := record(t, "tool", tool("unheard"), &observing, nil), record(t, "tool", tool("fetch"), &observing, func(in *admission.Inputs) { in.Counters = total(3) })
	if d := denied.Decision; d.Verdict != events.Allow || d.Would != events.Deny || d.Mode != events.ModeObserve {
		t.Fatalf("%+v", d)
	}
	for _, r := range []Record{denied, allowed} {
		for name, snap := range map[string]*admission.Config{"enforcing": enforcing, "observing": &observing} {
			base := Decide(r, snap, KnownState{})
			if diff := Compare(r.Decision, base.Decision); len(diff) > 0 {
				t.Errorf("%s: %v", name, diff)
			}
			out := CandidateOutcome(r.Decision, base, Decide(r.Enforced(), snap, KnownState{}))
			if out.Verdict != r.Decision.EnforcedVerdict() || out.Changed(r.Decision) {
				t.Errorf("%s: the same policies give %+v", name, out)
			}
		}
	}
	forged := denied
	forged.Decision.Mode, forged.Decision.Would = "", ""
	if diff := Compare(forged.Decision, Decide(denied, enforcing, KnownState{}).Decision); len(diff) != 2 {
		t.Errorf("without mode and would: %v", diff)
	}
	forged = denied
	forged.Decision.Would = events.Allow
	if diff := Compare(forged.Decision, Decide(forged, enforcing, KnownState{}).Decision); len(diff) != 1 || diff[0].Field != "would" {
		t.Errorf("with another would: %v", diff)
	}
}

// A replay that takes other inputs is seen.
func TestDifferencesAreSeen(t *testing.T) {
	snap := snapshot(t)
	r := record(t, "tool", tool("fetch"), snap, nil)
	other := r
	other.Body = []byte(tool("unheard"))
	if diff := Compare(r.Decision, Decide(other, snap, KnownState{}).Decision); !slices.ContainsFunc(diff, func(d Difference) bool { return d.Field == "verdict" }) {
		t.Errorf("another request: %v", diff)
	}
	other.Body = []byte(strings.Replace(tool("fetch"), "hunter2", "hunter3", 1))
	if diff := Compare(r.Decision, Decide(other, snap, KnownState{TenantKey: []byte("0123456789abcdef0123456789abcdef")}).Decision); len(diff) != 2 {
		t.Errorf("other arguments, with the key: %v", diff)
	}
	forged := r
	forged.Decision.Verdict = events.Deny
	if diff := Compare(forged.Decision, Decide(r, snap, KnownState{}).Decision); len(diff) != 1 || diff[0].String() != "verdict: recorded deny, replayed allow" {
		t.Errorf("another verdict: %v", diff)
	}
}

func TestWhatIsMissing(t *testing.T) {
	snap, m := snapshot(t), courier(t)
	r := record(t, "aump", booking(m), snap, func(in *admission.Inputs) { in.Mandates = ledger{m: m}.records("") })
	if got := Decide(r, snap, KnownState{}); len(got.Unknown) != 1 || !strings.Contains(got.Unknown[0], "aump_mnd_courier_01") {
		t.Errorf("%v", got.Unknown)
	}
	r = record(t, "tool", tool("fetch"), snap, nil)
	r.Decision.Publishers = &events.SnapshotRef{Revision: 3, Digest: "x"}
	if got := Decide(r, snap, KnownState{}); len(got.Unknown) != 1 || !strings.Contains(got.Unknown[0], "revision 3") {
		t.Errorf("%v", got.Unknown)
	}
	asked := ""
	got := Decide(r, snap, KnownState{Publishers: func(tenant string, ref events.SnapshotRef) publisher.Registry {
		asked = fmt.Sprint(tenant, ref.Revision)
		return publisher.Compile(nil, 3)
	}})
	if asked != "acme3" || len(got.Unknown) > 0 {
		t.Errorf("asked %s, %v", asked, got.Unknown)
	}
	r = record(t, "tool", tool("fetch"), snap, nil)
	r.Decision.Verdict, r.Decision.Reasons = events.Deny, []events.Reason{{Evaluator: admission.EvaluatorName, Code: admission.CodeTooLarge}}
	if got := Decide(r, snap, KnownState{}); len(got.Unknown) != 1 || !strings.Contains(got.Unknown[0], "no copy") {
		t.Errorf("%v", got.Unknown)
	}
}

// TestSignaturesAreOfTheRecord: signing keys that were put, changed or removed after a decision change nothing of its
// replay: the signatures count as they did for the decision.
func TestSignaturesAreOfTheRecord(t *testing.T) {
	snap := snapshot(t)
	signed := func(state aump.SignatureState) *mandate.Mandate {
		m := *courier(t)
		m.Signatures = state
		return &m
	}
	states := []aump.SignatureState{"", aump.SignatureVerified, aump.SignatureUnverifiable, aump.SignatureInvalid}
	verdicts := map[aump.SignatureState]events.Verdict{"": events.Allow, aump.SignatureVerified: events.Allow}
	for _, then := range states {
		m := signed(then)
		r := record(t, "aump", booking(m), snap, func(in *admission.Inputs) { in.Mandates = ledger{m: m}.records("") })
		if want := cmp.Or(verdicts[then], events.Deny); r.Decision.Verdict != want {
			t.Fatalf("%q is %s: %v", then, r.Decision.Verdict, r.Decision.Reasons)
		}
		for _, now := range states {
			got := Decide(r, snap, KnownState{Mandate: func(string, string, string) *mandate.Mandate { return signed(now) }})
			if diff := Compare(r.Decision, got.Decision); len(diff)+len(got.Unknown) > 0 {
				t.Errorf("signatures %q then and %q now: %v, unknown: %v", then, now, diff, got.Unknown)
			}
		}
	}
}

func TestShift(t *testing.T) {
	counted := func(n int64) func(*admission.Inputs) { return func(in *admission.Inputs) { in.Counters = total(n) } }
	for _, c := range []struct {
		name, tool string
		set        func(*admission.Inputs)
		approvals  []string // reasons of evaluator approval, and what they made of it
		verdict    events.Verdict
		candidate  []string // edits
		want       string
	}{
		{"nothing changes", "fetch", nil, nil, "", nil, "allow"},
		{"a verdict", "ask", nil, nil, "", []string{"verdict: ask", "verdict: deny"}, "deny"},
		{"a lower limit that was kept", "fetch", counted(3), nil, "", []string{"MAX", "5"}, "allow"},
		{"a lower limit that was not", "fetch", counted(7), nil, "", []string{"MAX", "5"}, "deny"},
		{"a higher limit", "fetch", counted(12), nil, "", []string{"MAX", "20"}, "allow"},
		{"a limit on something else", "fetch", counted(3), nil, "", []string{"[source]", "[tool]"}, "unknown: a limit counts something"},
		{"a limit in another unit", "fetch", counted(3), nil, "", []string{"[source]", "[source], amount: '1'"}, "unknown: a limit counts something"},
		{"such a limit beside a deny", "fetch", counted(3), nil, "", []string{"[source]", "[tool]", "      verdict: allow\n      reason: reads", "      verdict: deny\n      reason: reads"}, "deny"},

		{"granted", "ask", nil, []string{approval.ReasonGranted}, events.Allow, nil, "allow"},
		{"granted, and still asked for other reasons", "ask", nil, []string{approval.ReasonGranted}, events.Allow, []string{"reason: asks", "reason: asks_more"}, "allow"},
		{"granted, and now another rule asks", "ask", nil, []string{approval.ReasonGranted}, events.Allow, []string{"name: ask", "name: other"}, "unknown: an approval workflow"},
		{"granted, and now two must approve", "ask", nil, []string{approval.ReasonGranted}, events.Allow, []string{"reason: asks", "reason: asks\n      approval: {quorum: 2}"}, "unknown: an approval workflow"},
		{"refused, and now two are asked", "ask", nil, []string{approval.ReasonDenied}, events.Deny, []string{"reason: asks", "reason: asks\n      approval: {quorum: 2}"}, "unknown: an approval workflow"},
		{"waiting, and now two must approve", "ask", nil, []string{approval.ReasonPending}, events.Ask, []string{"reason: asks", "reason: asks\n      approval: {quorum: 2}"}, "ask"},
		{"granted, and now denied", "ask", nil, []string{approval.ReasonGranted}, events.Allow, []string{"verdict: ask", "verdict: deny"}, "deny"},
		{"granted, and now allowed anyway", "ask", nil, []string{approval.ReasonGranted}, events.Allow, []string{"verdict: ask", "verdict: allow"}, "allow"},
		{"granted, and now deferred", "ask", nil, []string{approval.ReasonGranted}, events.Allow, []string{"verdict: ask", "verdict: defer"}, "unknown: an approval workflow"},
		{"refused, and now allowed", "ask", nil, []string{approval.ReasonDenied}, events.Deny, []string{"verdict: ask", "verdict: allow"}, "allow"},
		{"waiting", "ask", nil, []string{approval.ReasonPending}, events.Ask, nil, "ask"},
		{"waiting, though allowed", "fetch", nil, []string{approval.ReasonPending}, events.Ask, nil, "ask"},
		{"denied, though allowed", "fetch", nil, []string{approval.ReasonDenied}, events.Deny, nil, "deny"},
		{"evasion, and now asked", "fetch", nil, []string{approval.ReasonEvasion}, events.Ask, []string{`"fetch", "book_flight"`, `"x"`, `tool == "ask"`, `tool == "fetch"`}, "unknown: an approval workflow"},
		{"evasion", "fetch", nil, []string{approval.ReasonEvasion}, events.Ask, nil, "ask"},
		{"evasion, and now denied", "fetch", nil, []string{approval.ReasonEvasion}, events.Ask, []string{`"fetch", "book_flight"`, `"x"`}, "deny"},
		{"an approval beside a deny", "unheard", nil, []string{approval.ReasonGranted}, events.Allow, nil, "unknown: the record does not hold all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := snapshot(t)
			r := record(t, "tool", tool(c.tool), old, c.set)
			for _, code := range c.approvals {
				r.Decision.Reasons = append(r.Decision.Reasons, events.Reason{Evaluator: approval.EvaluatorName, Code: code})
				r.Decision.Verdict = c.verdict
			}
			out := CandidateOutcome(r.Decision, Decide(r, old, KnownState{}), Decide(r, snapshot(t, c.candidate...), KnownState{}))
			got := string(out.Verdict)
			if len(out.Unknown) > 0 {
				got = "unknown: " + strings.Join(out.Unknown, "; ")
			}
			if !strings.HasPrefix(got, c.want) || out.Changed(r.Decision) != (len(out.Unknown) == 0 && out.Verdict != r.Decision.Verdict) {
				t.Errorf("was %s, got %s %v", r.Decision.Verdict, got, out.Reasons)
			}
		})
	}
}

// A decision of which the record does not hold everything is never guessed at.
func TestShiftNeedsTheOldDecision(t *testing.T) {
	old := snapshot(t)
	r := record(t, "tool", tool("fetch"), old, nil)
	r.Decision.Reasons = append(r.Decision.Reasons, events.Reason{Evaluator: "new_evaluator", Code: "unheard_of"})
	if out := CandidateOutcome(r.Decision, Decide(r, old, KnownState{}), Decide(r, old, KnownState{})); len(out.Unknown) == 0 || out.Verdict != "" {
		t.Errorf("%+v", out)
	}
}

// FuzzReplay: whatever a request holds, deciding it again from its record gives
// the same.
func FuzzReplay(f *testing.F) {
	for _, seed := range []string{tool("fetch"), tool("ask"), invocation, `{`, `{"a":1e400}`, `[]`} {
		f.Add("tool", []byte(seed), int64(9))
		f.Add("aaep", []byte(seed), int64(11))
		f.Add("agenthook", []byte(seed), int64(-1))
	}
	f.Fuzz(func(t *testing.T, protocol string, body []byte, n int64) {
		snap := snapshot(t)
		r := record(t, protocol, string(body), snap, func(in *admission.Inputs) { in.Counters = total(min(n, policy.MaxAmount)) })
		got := Decide(r, snap, KnownState{})
		if diff := Compare(r.Decision, got.Decision); len(diff)+len(got.Unknown) > 0 {
			t.Errorf("differs: %v, unknown: %v", diff, got.Unknown)
		}
	})
}

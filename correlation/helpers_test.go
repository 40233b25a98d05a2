package correlation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/internal/eventtime"

	"github.com/countersign-dev/countersign/correlation/corpus"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
)

var (
	epoch     = corpus.Epoch
	signer    = mustKey(1)
	stranger  = mustKey(2)
	tenantKey = bytes.Repeat([]byte{9}, digest.KeySize)
	space     = subject.Space{}
)

func mustKey(b byte) signing.PrivateKey {
	k, err := signing.NewPrivateKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		panic(err)
	}
	return k
}

// tree is a JSON object in a test.
type tree = corpus.Tree

// What a line of the corpus is made an event with.
var set, uuid, stamp, hook, wire = corpus.WithMember, corpus.UUID, corpus.Stamp, corpus.AgentHookEvent, corpus.AAEPEvent

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func pre(n int) tree {
	return set(hook(n, "PreToolUse", 0), "tool_input", tree{"invoice": "A-17", "amount": 120})
}

func post(n int) tree {
	p := set(hook(n, "PostToolUse", 2), "metadata.tool_input_executed", tree{"invoice": "A-17", "amount": 120})
	return set(p, "metadata.execution", tree{"outcome": "succeeded", "started_at": stamp(1), "completed_at": stamp(2)})
}

func invoked(n int, id string) tree {
	return wire(n, "tool.invoked", 1, withID(tree{"tool": "lookup"}, id))
}

func completed(n int, id, status string) tree {
	m := tree{"tool": "lookup", "status": status}
	if status != "success" {
		m["error_message"] = "It did not work."
	}
	return wire(n, "tool.completed", 2, withID(m, id))
}

func withID(m tree, id string) tree {
	if id != "" {
		m["tool_call_id"] = id
	}
	return m
}

// ledger is a log in the making.
type ledger struct {
	t    testing.TB
	opts Options
	msgs []events.LogMessage
	now  time.Time
}

func newLedger(t testing.TB) *ledger {
	l := &ledger{t: t, now: epoch, opts: Options{
		Shard: "GOV", RequireVerdict: true,
		TenantKey:  func(string) []byte { return tenantKey },
		KeyVoucher: func(k events.KeyRecord) bool { return k.Vouch == "ok" },
	}}
	l.key(signer, "ok")
	return l
}

func (l *ledger) put(subj string, header map[string][]string, body []byte) uint64 {
	l.now = l.now.Add(10 * time.Millisecond)
	seq := uint64(len(l.msgs)) + 1
	l.msgs = append(l.msgs, events.LogMessage{Seq: seq, Subject: subj, Time: l.now, Header: header, Body: body})
	return seq
}

func (l *ledger) key(k signing.PrivateKey, vouch string) {
	b, err := events.Encode(events.KeyRecord{KeyID: k.ID, Use: "receipt", Algorithm: "EdDSA",
		PublicKey: signing.EncodePublic(k.Public()), CreatedAt: events.At(epoch), Vouch: vouch})
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(space.Control("GOV", events.ControlKey), nil, b)
}

func (l *ledger) at(seconds float64) *ledger {
	if t := epoch.Add(time.Duration(seconds * float64(time.Second))); t.After(l.now) {
		l.now = t
	}
	return l
}

func (l *ledger) tick() { l.put(space.Control("GOV", events.ControlTick), nil, []byte(`{}`)) }

// idle lets time pass up to so many seconds, as an active correlator does on a shard
// on which nothing else happens.
func (l *ledger) idle(seconds float64) *ledger {
	end := epoch.Add(time.Duration(seconds * float64(time.Second)))
	for l.now.Add(eventtime.IdleQuarter).Before(end) {
		l.now = l.now.Add(eventtime.IdleQuarter)
		l.tick()
	}
	l.at(seconds).tick()
	return l
}

// event logs a producer's event.
func (l *ledger) event(e tree) uint64 { return l.eventFrom("acme", "rt1", e) }

func (l *ledger) eventFrom(tenant, source string, e tree) uint64 {
	session, _ := e["session_id"].(string)
	if typ, ok := e["event_type"].(string); ok {
		return l.put(space.Event(tenant, source, subject.ProtoAgentHook, session, typ), nil, encode(e))
	}
	typ, _ := e["type"].(string)
	return l.put(space.Event(tenant, source, subject.ProtoAAEP, session, strings.TrimPrefix(typ, "aaep:")), nil, encode(e))
}

// request logs the admitter's copy of a request.
func (l *ledger) request(e tree, decisionID string) uint64 {
	session, _ := e["session_id"].(string)
	protocol := subject.ProtoAAEP
	if e["event_type"] != nil {
		protocol = subject.ProtoAgentHook
	}
	return l.put(space.Request("acme", "rt1", protocol, session), map[string][]string{events.HeaderDecisionID: {decisionID}}, encode(e))
}

// decisionOn is the decision that the admitter would make of a request.
func decisionOn(e tree, id string, v events.Verdict, at time.Time) events.Decision {
	session, _ := e["session_id"].(string)
	d := events.Decision{
		DecisionID: id, EventID: e["event_id"].(string), Tenant: "acme", Source: "rt1", Session: session,
		RequestDigest: digest.Keyed(tenantKey, encode(e)), Verdict: v, Reasons: []events.Reason{},
		DecidedAt: events.At(at), ExpiresAt: events.At(at.Add(time.Minute)),
	}
	if e["event_type"] != nil {
		meta, _ := e["metadata"].(map[string]any)
		d.ToolCallID, _ = meta["tool_call_id"].(string)
		d.Protocol, d.Tool = subject.ProtoAgentHook, e["tool_name"].(string)
		input, err := events.Encode(e["tool_input"])
		if err != nil {
			panic(err)
		}
		d.ArgsDigest = digest.Keyed(tenantKey, input)
	} else {
		d.Protocol, d.Tool = subject.ProtoAAEP, e["tool"].(string)
		d.ToolCallID, _ = e["tool_call_id"].(string)
	}
	return d
}

func (l *ledger) decide(e tree, id string, v events.Verdict, change ...func(*events.Decision)) uint64 {
	d := decisionOn(e, id, v, l.now)
	for _, c := range change {
		c(&d)
	}
	return l.signed(d, signer)
}

func (l *ledger) signed(d events.Decision, k signing.PrivateKey) uint64 {
	body, err := events.Encode(d)
	if err != nil {
		l.t.Fatal(err)
	}
	sig, err := k.SignDetached(signing.TypeRecord, body)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.put(space.Decision(d.Tenant, string(d.Verdict), d.Session), map[string][]string{events.HeaderSignature: {sig}}, body)
}

// admit logs request and decision, as the admitter does.
func (l *ledger) admit(e tree, id string, v events.Verdict, change ...func(*events.Decision)) {
	l.request(e, id)
	l.decide(e, id, v, change...)
}

func receipted(d *events.Decision) { d.ReceiptHash = "sha256:00" }

// result is what a correlator made of a log.
type result struct {
	outputs  []Output
	findings []events.Finding // of our own rules
	checks   []events.Finding // of the protocols' checks
	calls    []events.Call
	core     *Correlator
}

func (l *ledger) run() result { l.t.Helper(); return replay(l.t, l.opts, l.msgs) }

func replay(t testing.TB, o Options, msgs []events.LogMessage) result {
	t.Helper()
	r := result{core: New(o)}
	for _, m := range msgs {
		r.add(t, r.core.Apply(m))
	}
	return r
}

func (r *result) add(t testing.TB, outs []Output) {
	t.Helper()
	r.outputs = append(r.outputs, outs...)
	for _, o := range outs {
		p, err := space.Parse(o.Subject)
		if err != nil {
			t.Fatalf("output on %q: %v", o.Subject, err)
		}
		if rec := o.Finding; rec != nil {
			if checkRules[rec.Rule] != nil {
				r.checks = append(r.checks, *rec)
			} else {
				r.findings = append(r.findings, *rec)
			}
			if p.Class != subject.Findings || p.State != string(rec.Severity) || o.ID != rec.FindingID || rec.EventIDs == nil || rec.Remedy == "" {
				t.Errorf("finding %+v is not in order on %q", rec, o.Subject)
			}
			if strings.ContainsAny(rec.Explanation, "{}") || !strings.HasSuffix(rec.Explanation, ".") {
				t.Errorf("explanation %q is not a sentence", rec.Explanation)
			}
			continue
		}
		rec := recordOf(t, o)
		r.calls = append(r.calls, *rec)
		if p.Class != subject.Calls || p.State != string(rec.State) || o.State != rec.State || !strings.HasPrefix(o.ID, rec.CallID+"-") {
			t.Errorf("call %+v is not in order on %q", rec, o.Subject)
		}
	}
}

// recordOf is the record of an output that is a call.
func recordOf(t testing.TB, o Output) *events.Call {
	t.Helper()
	c, err := events.DecodeRecord[events.Call](o.Body)
	if err != nil {
		t.Fatalf("%s: %v", o.Body, err)
	}
	return &c
}

// rules lists the findings that count as "rule/severity", sorted.
func (r result) rules() []string { return rulesOf(r.findings) }

// Checks of the protocols are left out: the corpus is about them.
func rulesOf(list []events.Finding) []string {
	out := []string{}
	for _, f := range list {
		if f.Severity != events.SeverityInfo && checkRules[f.Rule] == nil {
			out = append(out, f.Rule+"/"+string(f.Severity))
		}
	}
	slices.Sort(out)
	return out
}

// last is the newest record of every call, in the order the calls began.
func (r result) last() []events.Call {
	var list []events.Call
	for _, c := range r.calls {
		i := slices.IndexFunc(list, func(x events.Call) bool { return x.CallID == c.CallID })
		if i < 0 {
			list = append(list, c)
		} else {
			list[i] = c
		}
	}
	return list
}

func (r result) only(t testing.TB) events.Call {
	t.Helper()
	list := r.last()
	if len(list) != 1 {
		t.Fatalf("%d calls, want one: %+v", len(list), list)
	}
	return list[0]
}

func wantRules(t testing.TB, got []events.Finding, want ...string) {
	t.Helper()
	slices.Sort(want)
	if want == nil {
		want = []string{}
	}
	if have := rulesOf(got); !slices.Equal(have, want) {
		t.Errorf("findings %v, want %v", have, want)
		for _, f := range got {
			t.Logf("  %s %s: %s", f.Rule, f.Severity, f.Explanation)
		}
	}
}

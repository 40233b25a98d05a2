package correlation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
)

var everything = cmp.Exporter(func(reflect.Type) bool { return true })

// holdDecoded fails if a message that was decoded long ago is not what a new decoder makes of it.
func holdDecoded(t *testing.T, got fact.Input, fresh *fact.Decoder, m events.LogMessage) {
	t.Helper()
	want := fresh.Decode(m)
	if reflect.DeepEqual(got, want) {
		return
	}
	if d := cmp.Diff(want, got, everything); d != "" {
		t.Errorf("%s %s\nnew - old +\n%s", m.Subject, m.Body, d)
	}
}

// TestDecodedAhead: a decoder uses its document again for the next message, and what it made of earlier ones
// stays as it was.
func TestDecodedAhead(t *testing.T) {
	logs := map[string]*testLog{"scenario": scenario(t, 40), "aaep": aaepLog(t), "agenthook": hookLog(t), "governed": governedLog(t)}
	for _, c := range corpusSample(t) {
		logs[c.protocol+" "+c.name] = c.asLog(t)
	}
	for _, l := range logs {
		core := New(l.opts)
		ahead, fresh := core.NewDecoder(), core.NewDecoder()
		var inputs []fact.Input
		for _, m := range l.msgs {
			inputs = append(inputs, ahead.Decode(m))
		}
		for i, m := range l.msgs {
			holdDecoded(t, inputs[i], fresh, m)
		}
	}
}

// FuzzDecodedAhead is TestDecodedAhead for any message.
func FuzzDecodedAhead(f *testing.F) {
	l := scenario(f, 8)
	for _, log := range []*testLog{l, aaepLog(f), hookLog(f), governedLog(f)} {
		for _, m := range log.msgs[:min(len(log.msgs), 20)] {
			f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
		}
	}
	core := l.run().core
	f.Fuzz(func(t *testing.T, subj, header string, body []byte) {
		m := events.LogMessage{Seq: 7, Subject: subj, Time: epoch, Body: body, Header: map[string][]string{
			events.HeaderSignature: {header}, events.HeaderDecisionID: {header}, events.HeaderSession: {header},
		}}
		ahead := core.NewDecoder()
		in := ahead.Decode(m)
		for _, other := range l.msgs[:8] {
			ahead.Decode(other)
		}
		holdDecoded(t, in, core.NewDecoder(), m)
	})
}

// governedPre is what a publisher of the action-governance profile announces,
// with its verdict and an approval, governedPost what it reports then.
func governedPre(n int, call string) tree {
	e := set(pre(n), "metadata.tool_call_id", call)
	for path, v := range map[string]any{
		"evidence_phase": "pre_commit", "action": "write", "resource_kind": "api", "resource": "invoices/17", "resource_scope": "tenant",
		"operation_risk": "write", "annotations": tree{"team": "billing"},
		"metadata.tool_identity":        tree{"canonical_name": "billing.pay", "provider_name": "pay_invoice", "source": "mcp_tools_call", "schema_hash": schemaHash},
		"metadata.provider_translation": tree{"provider_surface": "mcp_tools_call", "model_facing_tool": "pay", "provider": "example", "adapter_version": "1", "schema_hash": schemaHash},
		"metadata.risk": tree{"risk_class": "financial_write", "requires_human_approval": true, "data_exfiltration_risk": "none",
			"writes_external_system": true, "idempotent": false, "contains_secret": false},
		"metadata.validation":        tree{"status": "passed", "validator": "runtime", "schema_hash": schemaHash},
		"metadata.redaction":         tree{"applied": false, "fields": []any{}, "policy_id": "none"},
		"metadata.admission_verdict": tree{"verdict": "allow", "reason": "approved", "policy_id": "p-1", "subscriber": "countersign", "decided_at": stamp(0)},
		"metadata.approval": tree{"required": true, "status": "approved", "workflow_id": "w-" + call, "reviewer_ref": "reviewer-1",
			"decided_at": stamp(0), "resume_policy": "retry_same_event"},
		"metadata.governance_context": tree{"department": "billing", "cost_center": 17, "labels": []any{"q4", "reviewed"}},
		"metadata.instance_id":        "runtime-1",
	} {
		e = set(e, path, v)
	}
	return e
}

func governedPost(n int, call string) tree {
	e := set(set(post(n), "metadata.tool_call_id", call), "evidence_phase", "post_hoc")
	return set(set(e, "metadata.tool_identity", tree{"canonical_name": "billing.pay", "provider_name": "pay_invoice", "source": "mcp_tools_call"}), "metadata.duration_ms", 1000)
}

const schemaHash = "sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e"

// governedLog is calls of such a publisher.
func governedLog(t testing.TB) *testLog {
	l := newTestLog(t)
	for i := range 1000 {
		session := "s" + strconv.Itoa(i%50)
		l.event(set(governedPre(2*i, "c"+strconv.Itoa(i)), "session_id", session))
		l.event(set(governedPost(2*i+1, "c"+strconv.Itoa(i)), "session_id", session))
	}
	return l
}

var (
	ownKey   = digest.NewSession(bytes.Repeat([]byte{3}, 32))
	otherKey = digest.NewSession(bytes.Repeat([]byte{4}, 32))
)

// withSessionKey makes a log whose sessions have a key.
func withSessionKey(t *testing.T, key *digest.Session) *testLog {
	l := newTestLog(t)
	l.opts.SessionSecret = func(tenant, session string) (*digest.Session, bool) {
		if tenant != "acme" || session != "sess_1" {
			t.Errorf("asked for the key of %q %q", tenant, session)
		}
		return key, true
	}
	return l
}

// An admitted digest is compared under the session's key. A digest under a key that the session
// does not have is inconclusive.
func TestSessionDigests(t *testing.T) {
	input := []byte(`{"a":1}`)
	for name, c := range map[string]struct {
		admitted, want string
	}{
		"the session's":         {ownKey.Digest(input), "equal"},
		"other arguments":       {ownKey.Digest([]byte(`{"a":2}`)), "different"},
		"another key":           {otherKey.Digest([]byte(`{"a":2}`)), "unknown"},
		"the tenant's":          {digest.Keyed(tenantKey, input), "unknown"},
		"plain":                 {digest.Plain(input), "equal"},
		"a form of nobody":      {"md5:00", "unknown"},
		"the session's, cut":    {ownKey.Form(), "different"},
		"only a prefix of them": {digest.PrefixSession, "unknown"},
	} {
		ran := fact.NewArguments(input, fact.DigestKeyers{Tenant: digest.NewKeyer(tenantKey), Session: ownKey.Keyer()}, nil)
		got := map[fact.Comparison]string{fact.ArgsEqual: "equal", fact.ArgsDifferent: "different", fact.ArgsUnknown: "unknown"}[fact.CompareArguments(&fact.Arguments{DecisionDigest: c.admitted}, &ran)]
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if fact.CompareArguments(&fact.Arguments{DecisionDigest: ownKey.Digest(nil)}, &fact.Arguments{DecisionDigest: otherKey.Digest(nil)}) != fact.ArgsUnknown {
		t.Error("digests under two keys are compared")
	}
}

// Records have the session's digests. They have the tenant's where there is no session, or
// where the session has no key.
func TestCallsAreUnderTheSessionsKey(t *testing.T) {
	for name, c := range map[string]struct {
		key  *digest.Session
		form string
	}{"with a key": {ownKey, ownKey.Form()}, "without": {nil, digest.PrefixKeyed}} {
		l := withSessionKey(t, c.key)
		l.opts.RequireVerdict = false
		e := set(set(pre(1), "session_id", "sess_1"), "metadata.tool_call_id", "c1")
		l.event(e)
		l.event(set(set(post(2), "session_id", "sess_1"), "metadata.tool_call_id", "c1"))
		calls := 0
		for _, o := range l.run().outputs {
			if o.Type != events.TypeCall {
				continue
			}
			calls++
			if body := string(o.Body); !strings.Contains(body, `"admitted_digest":"`+c.form) || strings.Contains(body, `executed_digest`) && !strings.Contains(body, `"executed_digest":"`+c.form) {
				t.Errorf("%s: %s", name, body)
			}
		}
		if calls == 0 {
			t.Error("no calls")
		}
	}
}

// A decoder reports the sessions whose keys it needs: those of messages with arguments.
func TestNeedsSessionSecret(t *testing.T) {
	l := newTestLog(t)
	ready := false
	l.opts.SessionSecret = func(string, string) (*digest.Session, bool) { return ownKey, ready }
	core := New(l.opts)
	l.event(set(pre(1), "session_id", "sess_1"))
	l.event(invoked(1, "t1"))
	l.event(set(set(pre(2), "session_id", "sess_2"), "event_type", "SessionStart"))
	l.event(set(post(3), "session_id", "sess_1")) // of which it is known already
	d := core.NewDecoder()
	for i, want := range []bool{true, false, false, true} {
		m := l.msgs[i+1]
		tenant, session, wants := d.Decode(m).NeedsSessionSecret()
		if wants != want || want && (tenant != "acme" || session != "sess_1") {
			t.Errorf("message %d: wants %v of %q %q", i, wants, tenant, session)
		}
	}
	ready = true
	in := d.Decode(l.msgs[1])
	if _, _, wants := in.NeedsSessionSecret(); wants || digest.ComparableForm(in.Event.Fact.Args.RecordDigest) != ownKey.Form() {
		t.Errorf("with the key: %v, %s", wants, in.Event.Fact.Args.RecordDigest)
	}
	for i := range fact.MaxSessionKeyers + 10 {
		d.SessionKeyers.Keyer("acme", strconv.Itoa(i))
	}
	if n := len(d.SessionKeyers.Known); n > fact.MaxSessionKeyers {
		t.Errorf("%d keys are kept", n)
	}
}

// Of a session whose key is not ready, one event is decoded in vain, not all of them.
func TestMissingKey(t *testing.T) {
	l := newTestLog(t)
	ready := false
	key := digest.NewSession([]byte("0123456789abcdef0123456789abcdef"))
	l.opts.SessionSecret = func(_, session string) (*digest.Session, bool) { return key, ready || session != "s1" }
	for i := range 4 {
		l.event(pre(i))
	}
	l.event(set(pre(9), "session_id", "s2"))
	d := New(l.opts).NewDecoder()
	read := 0
	for _, m := range l.msgs[1:] {
		in := d.Decode(m)
		if in.Event != nil {
			read++
		}
		if _, session, wants := in.NeedsSessionSecret(); wants != (session == "s1") {
			t.Errorf("%s: wants %v", session, wants)
		}
	}
	if read != 2 {
		t.Errorf("%d events were read, want one of each session", read)
	}
	ready = true
	for _, m := range l.msgs[1:] {
		if _, _, wants := d.Decode(m).NeedsSessionSecret(); wants {
			t.Errorf("sequence %d still wants its key", m.Seq)
		}
	}
	if len(d.SessionKeyers.Missing) > 0 {
		t.Errorf("%d sessions are missing", len(d.SessionKeyers.Missing))
	}
}

// aaepLog is AAEP sessions from start to end.
func aaepLog(t testing.TB) *testLog {
	l := newTestLog(t)
	l.opts.RequireVerdict = false
	n := 0
	for i := range 400 {
		session := "sess_" + strconv.Itoa(i)
		put := func(typ string, members tree) {
			n++
			e := wire(n, typ, float64(n)/100, tree{"session_id": session, "localization_hints": tree{"primary_language": "en"}})
			for k, v := range members {
				e[k] = v
			}
			l.event(e)
		}
		put("session.started", nil)
		put("state.changed", tree{"from_state": "idle", "to_state": "thinking"})
		for range 3 {
			id := "call_" + strconv.Itoa(n)
			put("tool.invoked", tree{"tool": "lookup", "tool_call_id": id})
			put("tool.completed", tree{"tool": "lookup", "tool_call_id": id, "status": "success"})
		}
		put("session.completed", nil)
	}
	return l
}

// hookLog is admitted, announced and completed calls of AgentHook, whose
// decisions were committed in groups.
func hookLog(t testing.TB) *testLog {
	l := newTestLog(t)
	l.opts.SessionSecret = func(_, session string) (*digest.Session, bool) {
		return digest.NewSession(append(make([]byte, digest.KeySize-4), (session + "....")[:4]...)), true
	}
	const calls, group = 2000, 50
	var bodies [][]byte
	var at []int
	for i := range calls {
		before := set(set(pre(2*i), "session_id", "s"+strconv.Itoa(i%200)), "metadata.tool_call_id", "c"+strconv.Itoa(i))
		l.request(before, "d"+strconv.Itoa(i))
		body, err := events.Encode(decisionOn(before, "d"+strconv.Itoa(i), events.Allow, l.now))
		if err != nil {
			t.Fatal(err)
		}
		bodies, at = append(bodies, body), append(at, len(l.msgs))
		l.put(space.Decision("acme", "allow", "s"+strconv.Itoa(i%200)), nil, body)
		l.event(before)
		now := l.now.Sub(epoch).Seconds()
		after := set(set(post(2*i+1), "session_id", "s"+strconv.Itoa(i%200)), "metadata.tool_call_id", "c"+strconv.Itoa(i))
		after = set(set(after, "timestamp", stamp(now)), "metadata.execution.started_at", stamp(now))
		l.event(set(set(after, "metadata.execution.completed_at", stamp(now)), "correlation_id", uuid(2*i)))
	}
	for i := 0; i < calls; i += group {
		values, err := signer.SignRecords(bodies[i : i+group])
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range values {
			l.msgs[at[i+k]].Header = map[string][]string{events.HeaderSignature: {v}}
		}
	}
	return l
}

var benchLogs = []struct {
	name string
	log  func(testing.TB) *testLog
}{{"aaep", aaepLog}, {"agenthook", hookLog}, {"governed", governedLog}}

// bench reports what one message costs.
func bench(b *testing.B, messages int, once func()) {
	b.ReportAllocs()
	before := processorTime()
	for b.Loop() {
		once()
	}
	n := float64(b.N * messages)
	b.ReportMetric(float64(processorTime()-before)/n/1000, "cpu-us/msg")
	b.ReportMetric(n/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(messages), "msg/op")
}

// processorTime is what this process has used, its garbage collector included.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkApply is everything, one after the other.
func BenchmarkApply(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			l := c.log(b)
			bench(b, len(l.msgs), func() {
				core := New(l.opts)
				for _, m := range l.msgs {
					core.Apply(m)
				}
			})
		})
	}
}

// BenchmarkDecode is the part that needs no state.
func BenchmarkDecode(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			l := c.log(b)
			core := l.run().core
			bench(b, len(l.msgs), func() {
				d := core.NewDecoder()
				for _, m := range l.msgs {
					d.Decode(m)
				}
			})
		})
	}
}

// BenchmarkStep is the pure core, on decoded messages.
func BenchmarkStep(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			l := c.log(b)
			d := l.run().core.NewDecoder()
			inputs := make([]fact.Input, len(l.msgs))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i, m := range l.msgs {
					inputs[i] = d.Decode(m)
				}
				core := New(l.opts)
				b.StartTimer()
				for i := range inputs {
					core.Step(&inputs[i])
				}
			}
			n := float64(b.N * len(l.msgs))
			b.ReportMetric(n/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(len(l.msgs)), "msg/op")
		})
	}
}

// BenchmarkEncode is the writing of the outputs.
func BenchmarkEncode(b *testing.B) {
	for _, c := range benchLogs {
		b.Run(c.name, func(b *testing.B) {
			outs := c.log(b).run().outputs
			bench(b, len(outs), func() {
				for _, o := range outs {
					o.Body = nil
					o.Encode()
				}
			})
		})
	}
}

// TestDecodeAhead: the outputs are those of Apply, however far ahead and by whichever decoder
// the messages are decoded, before and after keys change.
func TestDecodeAhead(t *testing.T) {
	l := scenario(t, rounds(40, 15))
	l.key(stranger, "ok")
	l.admit(set(pre(9001), "metadata.tool_call_id", "late"), "late", events.Deny)
	l.signed(decisionOn(pre(9002), "other-key", events.Allow, l.now), stranger)
	forged := decisionOn(pre(9003), "forged", events.Allow, l.now)
	body, _ := events.Encode(forged)
	sig, _ := mustKey(3).SignDetached(signing.TypeRecord, body)
	l.put(space.Decision("acme", "allow", forged.Session), map[string][]string{events.HeaderSignature: {sig}}, body)
	want := l.run()
	for _, ahead := range []int{1, 7, len(l.msgs)} {
		core := New(l.opts)
		decoders := []*fact.Decoder{core.NewDecoder(), core.NewDecoder()}
		var inputs []fact.Input
		var got []Output
		for i, m := range l.msgs {
			inputs = append(inputs, decoders[i%2].Decode(m))
			if len(inputs) == ahead || i == len(l.msgs)-1 {
				for i := range inputs {
					got = append(got, core.Step(&inputs[i])...)
				}
				inputs = nil
			}
		}
		if len(got) != len(want.outputs) {
			t.Fatalf("%d ahead: %d outputs, want %d", ahead, len(got), len(want.outputs))
		}
		for i := range got {
			got[i].Encode()
			if w := want.outputs[i]; got[i].ID != w.ID || got[i].Subject != w.Subject || !bytes.Equal(got[i].Body, w.Body) {
				t.Fatalf("%d ahead: output %d is\n%s\nwant\n%s", ahead, i, fmt.Sprint(got[i].ID, string(got[i].Body)), fmt.Sprint(w.ID, string(w.Body)))
			}
		}
	}
}

// TestSignatureOfAnUnknownKey: a signature that a decoder verified does not count if the
// correlator does not know its key.
func TestSignatureOfAnUnknownKey(t *testing.T) {
	l := newTestLog(t)
	l.decide(pre(1), "d1", events.Allow)
	knows, does := l.run().core.NewDecoder(), New(l.opts)
	in := knows.Decode(l.msgs[1])
	if in.Decision.Signature.Key == nil {
		t.Fatal("the decoder has verified nothing")
	}
	outs := does.Step(&in)
	if len(outs) != 1 || outs[0].Finding.Rule != ForgedRecord {
		t.Errorf("outputs %+v", outs)
	}
}

// FuzzApply: for every log, the correlator applies it, emits records in order, and emits the
// same again.
func FuzzApply(f *testing.F) {
	l := scenario(f, 8)
	for _, m := range l.msgs {
		f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
	}
	f.Add("gov.events.acme.rt1.agenthook.~.x", "", []byte(`{"metadata":{"retry":{"previous_tool_call_id":"c1"}},"event_type":"PostToolUse"}`))
	f.Add("gov.events", "", []byte(nil))
	f.Add("gov.events.~", "", []byte("[]"))
	f.Add("gov.control.GOV.key", "", []byte(`{"kid":"x"}`))
	f.Add("gov.approvals.acme.pending.w", "", []byte(`{}`))
	f.Add("elsewhere", "", []byte(`{}`))
	f.Fuzz(func(t *testing.T, subj, header string, body []byte) {
		m := events.LogMessage{Subject: subj, Time: epoch.Add(time.Hour), Body: slices.Clone(body), Header: map[string][]string{
			events.HeaderSignature: {header}, events.HeaderDecisionID: {header}, events.HeaderSession: {header}, "content-type": {header},
		}}
		play := func() []Output {
			core := New(l.opts)
			for _, m := range l.msgs[:20] {
				core.Apply(m)
			}
			var outs []Output
			for i := range uint64(2) {
				m.Seq = 100 + i
				outs = append(outs, core.Apply(m)...)
			}
			for i := range uint64(100) {
				at := epoch.Add(time.Duration(i+1) * 10 * time.Hour)
				outs = append(outs, core.Apply(events.LogMessage{Seq: 200 + i, Subject: "gov.control.GOV.tick", Time: at})...)
			}
			if core.Stats().Open != 0 || core.Stats().ArgsBytes != 0 {
				t.Errorf("left over: %+v", core.Stats())
			}
			return outs
		}
		outs := play()
		for _, o := range outs {
			p, err := space.Parse(o.Subject)
			if err != nil || (p.Class != subject.Calls && p.Class != subject.Findings) {
				t.Fatalf("output on %q: %v", o.Subject, err)
			}
			canonical, err := strictjson.CanonicalBytes(o.Body)
			if err != nil || !bytes.Equal(canonical, o.Body) {
				t.Fatalf("output %s is not canonical: %v", o.Body, err)
			}
		}
		if !slices.Equal(printed(outs), printed(play())) {
			t.Fatal("not the same again")
		}
		if !bytes.Equal(m.Body, body) {
			t.Fatal("the body was changed")
		}
	})
}

// FuzzCheck: no recording stops the check.
func FuzzCheck(f *testing.F) {
	before, after := golden()
	f.Add(subject.ProtoAgentHook, encode([]any{before, after, decisionLine(tree{"verdict": "deny", "event_id": uuid(1)})}))
	f.Add(subject.ProtoAgentHook, append(encode(before), append([]byte("\n"), encode(tree{"event_id": uuid(1), "decision": "ask", "reason": ""})...)...))
	f.Add(subject.ProtoAAEP, encode([]any{invoked(1, "call_1"), completed(2, "", "error"), wire(3, "session.completed", 1, nil)}))
	f.Add(subject.ProtoAAEP, []byte(`{"decision":{"decided_at":"x"}}`))
	f.Add(subject.ProtoAgentHook, []byte("[{]"))
	f.Fuzz(func(t *testing.T, protocol string, file []byte) {
		lines, err := ParseRecording(file)
		if err != nil {
			return
		}
		for _, p := range []string{protocol, subject.ProtoAAEP, subject.ProtoAgentHook} {
			found, err := Check(p, lines, CheckOptions{Now: epoch.Add(time.Hour)})
			if err != nil {
				continue
			}
			for _, one := range found {
				if one.Rule == "" || one.Severity == "" || one.EventIDs == nil || one.Explanation == "" || !json.Valid(encode(one)) {
					t.Fatalf("finding %+v", one)
				}
			}
		}
	})
}

// FuzzMask: masking takes any path, and what it hides can make two arguments
// inconclusive, never equal.
func FuzzMask(f *testing.F) {
	f.Add(`{"a":[{"b":1},2]}`, "tool_input.a[0].b")
	f.Add(`{"a":{"b/c":1}}`, "/tool_input/a/b~1c")
	f.Add(`{"a":1}`, "$.a")
	f.Add(`{}`, "")
	f.Fuzz(func(t *testing.T, document, path string) {
		parsed, err := strictjson.ParseObject([]byte(document), strictjson.DefaultLimits)
		if err != nil {
			return
		}
		canonical, err := strictjson.Canonical(parsed)
		if err != nil {
			return
		}
		a := fact.NewArguments(canonical, fact.DigestKeyers{}, []string{path})
		b := fact.NewArguments([]byte(`{"other":true}`), fact.DigestKeyers{}, nil)
		if fact.CompareArguments(&a, &b) == fact.ArgsEqual && a.PlainSum != b.PlainSum {
			t.Fatal("a redaction made different arguments equal")
		}
		if fact.CompareArguments(&a, &a) != fact.ArgsEqual {
			t.Fatal("not equal to itself")
		}
	})
}

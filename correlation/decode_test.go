package correlation

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

// ways are two decoders of one correlator, one of which makes a tree of every event.
func ways(c *Correlator) (short, long *fact.Decoder) {
	short, long = c.NewDecoder(), c.NewDecoder()
	long.AlwaysTree = true
	return short, long
}

var everything = cmp.Exporter(func(reflect.Type) bool { return true })

// holdTreeless fails if a message is read otherwise without a tree.
func holdTreeless(t *testing.T, short, long *fact.Decoder, m events.LogMessage) {
	t.Helper()
	got, want := short.Decode(m), long.Decode(m)
	if reflect.DeepEqual(got, want) {
		return
	}
	if d := cmp.Diff(want, got, everything); d != "" {
		t.Errorf("%s %s\nlong - short +\n%s", m.Subject, m.Body, d)
	}
}

// TestTreelessFacts: what is read without a tree is read the same with one,
// and most of what breaks no rule is.
func TestTreelessFacts(t *testing.T) {
	logs := map[string]*ledger{"scenario": scenario(t, 40), "aaep": aaepLog(t), "agenthook": hookLog(t), "governed": governedLog(t)}
	for _, c := range corpusCases(t) {
		logs[c.protocol+" "+c.name] = c.ledger(t)
	}
	for name, l := range logs {
		short, long := ways(l.run().core)
		for _, m := range l.msgs {
			holdTreeless(t, short, long, m)
		}
		if (name == "aaep" || name == "agenthook" || name == "governed") && short.TreelessReads < len(l.msgs)*3/4-1 {
			t.Errorf("%s: %d of %d messages are read without a tree", name, short.TreelessReads, len(l.msgs))
		}
	}
}

func FuzzTreelessFacts(f *testing.F) {
	l := scenario(f, 8)
	for _, m := range l.msgs {
		f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
	}
	for _, log := range []*ledger{aaepLog(f), hookLog(f), governedLog(f)} {
		for _, m := range log.msgs[:20] {
			f.Add(m.Subject, m.HeaderValue(events.HeaderSignature), m.Body)
		}
	}
	short, long := ways(l.run().core)
	f.Fuzz(func(t *testing.T, subj, header string, body []byte) {
		holdTreeless(t, short, long, events.LogMessage{Seq: 7, Subject: subj, Time: epoch, Body: body, Header: map[string][]string{
			events.HeaderSignature: {header}, events.HeaderDecisionID: {header}, events.HeaderSession: {header},
		}})
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
func governedLog(t testing.TB) *ledger {
	l := newLedger(t)
	for i := range 1000 {
		session := "s" + strconv.Itoa(i%50)
		l.event(set(governedPre(2*i, "c"+strconv.Itoa(i)), "session_id", session))
		l.event(set(governedPost(2*i+1, "c"+strconv.Itoa(i)), "session_id", session))
	}
	return l
}

// What governs a call does not send its events the long way, whatever it says;
// that a profile is broken does.
func TestGovernedFlat(t *testing.T) {
	for _, tt := range []struct {
		name     string
		e        tree
		treeless bool
	}{
		{"pre", governedPre(0, "c0"), true},
		{"post", governedPost(1, "c0"), true},
		{"without a verdict", set(governedPre(0, "c0"), "metadata.admission_verdict", nil), false},
		{"identity without a name", set(governedPre(0, "c0"), "metadata.tool_identity.canonical_name", nil), false},
		{"alias", set(governedPre(0, "c0"), "tool_name", "billing.pay"), true},
		{"two schema hashes", set(governedPre(0, "c0"), "metadata.validation.schema_hash", "sha256:aa"), false},
		{"approval without a status", set(governedPre(0, "c0"), "metadata.approval.status", nil), true},
		{"approval of itself", set(governedPre(0, "c0"), "metadata.approval.reviewer_ref", "runtime-1"), true},
		{"a collector's", set(governedPre(0, "c0"), "annotations.bus", "b"), true},
		{"two durations", set(governedPost(1, "c0"), "metadata.execution.duration_ms", 7), true},
		{"fail mode", set(set(set(hook(3, "ErrorOccurred", 1), "metadata.error_type", "admission_fail_mode"), "metadata.fail_mode_triggered", true), "metadata.outcome", "allow"), true},
		{"attested", set(hook(4, "SessionStart", 0), "metadata.runtime_attestation", tree{"nonce": "n", "hooks": []any{tree{"name": "x"}}}), true},
		{"managed", set(hook(5, "SessionStart", 0), "metadata.managed_runtime", tree{"instance_id": "i", "session_id": "other"}), true},
		{"page", set(hook(6, "WebPageRead", 0), "metadata.web", tree{"action_id": "a", "url": "https://example.org"}), true},
		{"goal", set(hook(7, "GoalSet", 0), "metadata.goal", tree{"parent_session_id": "s0"}), true},
		{"model", set(hook(8, "PostLLMCall", 0), "metadata", tree{"model": "m", "tokens_input": 1, "tokens_output": 2, "total_tokens": 4}), true},
		{"secret", set(governedPre(0, "c0"), "metadata.note", "AKIA"+"ABCDEFGHIJKLMNOP"), true},
		{"contract", set(hook(9, "RuntimeContractLoaded", 0), "metadata.runtime_contract", tree{"contract_hash": "sha256:1"}), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLedger(t)
			l.event(tt.e)
			short, long := ways(l.run().core)
			m := l.msgs[len(l.msgs)-1]
			holdTreeless(t, short, long, m)
			if (short.TreelessReads == 1) != tt.treeless {
				t.Errorf("read without a tree: %v: %s", !tt.treeless, m.Body)
			}
		})
	}
}

var (
	ownKey   = digest.NewSession(bytes.Repeat([]byte{3}, 32))
	otherKey = digest.NewSession(bytes.Repeat([]byte{4}, 32))
)

// under makes a ledger whose sessions have a key.
func under(t *testing.T, key *digest.Session) *ledger {
	l := newLedger(t)
	l.opts.SessionKey = func(tenant, session string) (*digest.Session, bool) {
		if tenant != "acme" || session != "sess_1" {
			t.Errorf("asked for the key of %q %q", tenant, session)
		}
		return key, true
	}
	return l
}

// What a decision admitted is held against what ran by digests under the session's
// key, and by those under the tenant's, which decisions had before. Of a key that
// the session does not have any more nobody can tell.
func TestSessionDigests(t *testing.T) {
	input := []byte(`{"a":1}`)
	for name, c := range map[string]struct {
		admitted, want string
	}{
		"the session's":         {ownKey.Digest(input), "equal"},
		"other arguments":       {ownKey.Digest([]byte(`{"a":2}`)), "different"},
		"another key":           {otherKey.Digest([]byte(`{"a":2}`)), "unknown"},
		"the tenant's":          {digest.Keyed(tenantKey, input), "equal"},
		"the tenant's, other":   {digest.Keyed(tenantKey, []byte(`{"a":2}`)), "different"},
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

// Records name arguments by the session's digests; the tenant's stand where there
// is no session, or nobody has its key.
func TestCallsAreUnderTheSessionsKey(t *testing.T) {
	for name, c := range map[string]struct {
		key  *digest.Session
		form string
	}{"with a key": {ownKey, ownKey.Form()}, "without": {nil, digest.PrefixKeyed}} {
		l := under(t, c.key)
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

// A decoder says of which sessions it needs keys: of those whose arguments it reads.
func TestWants(t *testing.T) {
	l := newLedger(t)
	ready := false
	l.opts.SessionKey = func(string, string) (*digest.Session, bool) { return ownKey, ready }
	core := New(l.opts)
	l.event(set(pre(1), "session_id", "sess_1"))
	l.event(invoked(1, "t1"))
	l.event(set(set(pre(2), "session_id", "sess_2"), "event_type", "SessionStart"))
	l.event(set(post(3), "session_id", "sess_1")) // of which it is known already
	d := core.NewDecoder()
	for i, want := range []bool{true, false, false, true} {
		m := l.msgs[i+1]
		tenant, session, wants := d.Decode(m).NeedsSessionKey()
		if wants != want || want && (tenant != "acme" || session != "sess_1") {
			t.Errorf("message %d: wants %v of %q %q", i, wants, tenant, session)
		}
	}
	ready = true
	in := d.Decode(l.msgs[1])
	if _, _, wants := in.NeedsSessionKey(); wants || digest.ComparableForm(in.Event.Fact.Args.RecordDigest) != ownKey.Form() {
		t.Errorf("with the key: %v, %s", wants, in.Event.Fact.Args.RecordDigest)
	}
	for i := range fact.MaxSessionKeyers + 10 {
		d.SessionKeyers.Keyer("acme", strconv.Itoa(i))
	}
	if n := len(d.SessionKeyers.Known); n > fact.MaxSessionKeyers {
		t.Errorf("%d keys are kept", n)
	}
}

// Of a session whose key is not ready one event is read in vain, not all of them.
func TestMissingKey(t *testing.T) {
	l := newLedger(t)
	ready := false
	key := digest.NewSession([]byte("0123456789abcdef0123456789abcdef"))
	l.opts.SessionKey = func(_, session string) (*digest.Session, bool) { return key, ready || session != "s1" }
	for i := range 4 {
		l.event(pre(i))
	}
	l.event(set(pre(9), "session_id", "s2"))
	d := New(l.opts).NewDecoder()
	for _, m := range l.msgs[1:] {
		in := d.Decode(m)
		if _, session, wants := in.NeedsSessionKey(); wants != (session == "s1") {
			t.Errorf("%s: wants %v", session, wants)
		}
	}
	if d.TreelessReads != 2 {
		t.Errorf("%d events were read, want one of each session", d.TreelessReads)
	}
	ready = true
	for _, m := range l.msgs[1:] {
		if _, _, wants := d.Decode(m).NeedsSessionKey(); wants {
			t.Errorf("sequence %d still wants its key", m.Seq)
		}
	}
	if d.TreelessReads != 7 || len(d.SessionKeyers.Missing) > 0 {
		t.Errorf("%d events were read, %d sessions are missing", d.TreelessReads, len(d.SessionKeyers.Missing))
	}
}

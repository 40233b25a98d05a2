package correlation

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

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
		ran := newArguments(input, digestKeyers{tenant: digest.NewKeyer(tenantKey), session: ownKey.Keyer()}, nil)
		got := map[comparison]string{argsEqual: "equal", argsDifferent: "different", argsUnknown: "unknown"}[compareArguments(&arguments{decisionDigest: c.admitted}, &ran)]
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if compareArguments(&arguments{decisionDigest: ownKey.Digest(nil)}, &arguments{decisionDigest: otherKey.Digest(nil)}) != argsUnknown {
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
		tenant, session, wants := d.Decode(m).Wants()
		if wants != want || want && (tenant != "acme" || session != "sess_1") {
			t.Errorf("message %d: wants %v of %q %q", i, wants, tenant, session)
		}
	}
	ready = true
	in := d.Decode(l.msgs[1])
	if _, _, wants := in.Wants(); wants || digest.ComparableForm(in.event.fact.args.recordDigest) != ownKey.Form() {
		t.Errorf("with the key: %v, %s", wants, in.event.fact.args.recordDigest)
	}
	for i := range maxSessionKeyers + 10 {
		d.sessionKeyers.keyer("acme", itoa(i))
	}
	if n := len(d.sessionKeyers.known); n > maxSessionKeyers {
		t.Errorf("%d keys are kept", n)
	}
}

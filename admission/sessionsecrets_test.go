package admission

import (
	"bytes"
	"testing"

	"github.com/countersign-dev/countersign/admission/agenthook"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
)

var sessionsKey = digest.NewSession(bytes.Repeat([]byte{3}, 32))

// Everything that is said of a request is made under its session's key, and nothing
// is decided before that is there.
func TestSessionKey(t *testing.T) {
	req, in, snap := request(agenthook.Name, preToolUse), inputs(), allowAll(t)
	asked, ready := "", false
	in.SessionSecret = func(tenant, session string) (*digest.Session, bool) {
		asked = tenant + " " + session
		return sessionsKey, ready
	}
	out := Decide(req, snap, in)
	session, wants := out.NeedsSessionSecret()
	if !wants || asked != "acme "+session || session == "" || out.Decision.Verdict != events.Deny || out.Decision.Reasons[0].Code != CodeInternal || !out.NoReceipt || out.Consumption.Counts != nil {
		t.Fatalf("without the key: asked for %q, wants %q %v, %+v", asked, session, wants, out.Decision)
	}
	if _, err := out.Reply(); err != nil {
		t.Error(err)
	}
	ready = true
	out = Decide(req, snap, in)
	d := out.Decision
	if _, wants := out.NeedsSessionSecret(); wants || d.Verdict != events.Allow || d.RequestDigest != sessionsKey.Digest(req.Body) || digest.ComparableForm(d.ArgsDigest) != sessionsKey.Form() {
		t.Errorf("with the key: %+v", d)
	}
	out.RefuseTooLarge(in, []byte("small"))
	if out.Decision.RequestDigest != sessionsKey.Digest([]byte("small")) {
		t.Error(out.Decision.RequestDigest)
	}

	// Nobody's requests ask for no key, and what has no session has the tenant's.
	asked = ""
	for name, change := range map[string]func(*Request, *Inputs){
		"unknown tenant":   func(_ *Request, in *Inputs) { in.KnownTenant = false },
		"unknown protocol": func(r *Request, _ *Inputs) { r.Protocol = "nosuch" },
		"no source":        func(r *Request, _ *Inputs) { r.Source = "" },
		"no session":       func(r *Request, _ *Inputs) { r.Body = []byte(`{"event_type":"PreToolUse"}`) },
	} {
		r, in := req, in
		change(&r, &in)
		out := Decide(r, snap, in)
		if _, wants := out.NeedsSessionSecret(); wants || asked != "" || out.Decision.RequestDigest != digest.Keyed(in.TenantKey, r.Body) {
			t.Errorf("%s: asked for %q, %+v", name, asked, out.Decision)
		}
	}
}

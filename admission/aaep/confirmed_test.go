package aaep

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// knows says the same of every invocation and remembers which was asked about.
type knows struct {
	word  call.Confirmation
	asked call.Invocation
}

func (k *knows) Confirmation(i call.Invocation) call.Confirmation {
	k.asked = i
	return k.word
}

func TestConfirmed(t *testing.T) {
	const (
		ordinary, high, final, both = "", "high", "final", "both"
		explicit, inferred          = true, false
	)
	invocations := map[string]set{ordinary: nil, high: {"risk_level": "high"}, final: {"irreversible": true}, both: {"irreversible": true, "risk_level": "high"}}
	yes := call.Confirmation{Status: call.ConfirmationAccepted, ID: "q1", Until: noon.Add(time.Minute)}
	of := func(s call.ConfirmationStatus, explicit bool) call.Confirmation {
		return call.Confirmation{Status: s, Explicit: explicit}
	}
	with := func(c call.Confirmation, change func(*call.Confirmation)) call.Confirmation { change(&c); return c }
	named := with(yes, func(c *call.Confirmation) { c.Explicit = true })
	less := with(named, func(c *call.Confirmation) { c.Understated = true })
	silent := with(of(call.ConfirmationExpired, explicit), func(c *call.Confirmation) { c.AcceptsByDefault = true })
	for _, tt := range []struct {
		name       string // the check of the digest
		invocation string
		word       call.Confirmation
		want       string
		takes      string
	}{
		{"C-100 accepted, it names the call", final, named, "allow confirmation_accepted", "q1"},
		{"C-100 accepted, it names none", final, yes, "allow confirmation_accepted confirmation_inferred", "q1"},
		{"C-101 accepted", high, named, "allow confirmation_accepted", "q1"},
		{"both accepted", both, named, "allow confirmation_accepted", "q1"},
		{"C-100 not asked", final, call.Confirmation{}, "ask confirmation_required@/irreversible", ""},
		{"C-101 not asked", high, call.Confirmation{}, "ask high_risk_unconfirmed@/risk_level", ""},
		{"C-102 used", final, of(call.ConfirmationUsed, explicit), "ask confirmation_required@/irreversible confirmation_used", ""},
		{"C-103 pending", final, of(call.ConfirmationPending, explicit), "ask confirmation_required@/irreversible confirmation_pending", ""},
		{"C-103 pending, harmless", ordinary, of(call.ConfirmationPending, explicit), "ask confirmation_pending", ""},
		{"C-104 declined", final, of(call.ConfirmationDeclined, explicit), "deny confirmation_declined", ""},
		{"C-104 declined, it names none", both, of(call.ConfirmationDeclined, inferred), "deny confirmation_declined", ""},
		{"C-104 declined, harmless", ordinary, of(call.ConfirmationDeclined, explicit), "deny confirmation_declined", ""},
		{"C-105 expired", final, of(call.ConfirmationExpired, inferred), "ask confirmation_required@/irreversible confirmation_expired", ""},
		{"C-105 expired, harmless", ordinary, of(call.ConfirmationExpired, explicit), "ask confirmation_expired", ""},
		{"silence is enough for the harmless", ordinary, silent, "allow", ""},
		{"silence is never a yes (A-04)", final, silent, "ask confirmation_required@/irreversible confirmation_expired", ""},
		{"C-109 withdrawn", high, of(call.ConfirmationWithdrawn, explicit), "ask high_risk_unconfirmed@/risk_level confirmation_withdrawn", ""},
		{"ambiguous", final, of(call.ConfirmationAmbiguous, inferred), "ask confirmation_required@/irreversible confirmation_ambiguous", ""},
		{"C-119 told of less", both, less, "ask confirmation_required@/irreversible high_risk_unconfirmed@/risk_level confirmation_understated", ""},
		{"harmless uses nothing up", ordinary, named, "allow", ""},
		{"harmless, other question", ordinary, of(call.ConfirmationPending, inferred), "allow", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(event(t, "tool.invoked", invocations[tt.invocation]))
			r.Confirmations, r.Now = &knows{word: tt.word}, noon
			c, o := Evaluator{}.Read(r)
			if said(o) != tt.want || c.Confirmed != tt.takes || (c.ConfirmedInvocation != nil) != (tt.takes != "") {
				t.Errorf("got  %s, takes %q\nwant %s, takes %q", said(o), c.Confirmed, tt.want, tt.takes)
			}
			if asks := o.Verdict == "ask"; asks != (c.Unconfirmed != nil) {
				t.Errorf("%s, and unconfirmed is %v", o.Verdict, c.Unconfirmed)
			}
			if tt.takes != "" && !o.NotAfter.Equal(yes.Until) {
				t.Errorf("it outlives the acceptance: %v", o.NotAfter)
			}
		})
	}
}

// The evaluator asks about this very invocation.
func TestWhichInvocation(t *testing.T) {
	k := &knows{}
	r := request(event(t, "tool.invoked", set{"irreversible": true, "risk_level": "medium"}))
	r.Confirmations, r.Now = k, noon
	Evaluator{}.Read(r)
	if k.asked != (call.Invocation{Tenant: "acme", Source: "rt1", Session: "sess_1", ToolCallID: "call_1", Tool: "pay", Risk: "medium", Irreversible: true, Now: noon}) {
		t.Errorf("%+v", k.asked)
	}
}

// How strictly the specification is read (A-03, A-05 of the digest).
func TestStrictness(t *testing.T) {
	inferred := call.Confirmation{Status: call.ConfirmationAccepted, ID: "q1", Until: noon.Add(time.Minute)}
	for _, tt := range []struct {
		name    string
		strict  bool
		profile call.Profile
		set     set
		word    call.Confirmation
		want    string
	}{
		{"hardened", false, "", set{"risk_level": "high"}, call.Confirmation{}, "ask high_risk_unconfirmed@/risk_level"},
		{"reference", false, call.ProfileReferenceSDK, set{"risk_level": "high"}, call.Confirmation{}, "allow high_risk_unconfirmed@/risk_level"},
		{"reference, irreversible", false, call.ProfileReferenceSDK, set{"irreversible": true}, call.Confirmation{}, "ask confirmation_required@/irreversible"},
		{"strict reference", true, call.ProfileReferenceSDK, set{"risk_level": "high"}, call.Confirmation{}, "ask high_risk_unconfirmed@/risk_level"},
		{"strict takes no question that names no call", true, "", set{"irreversible": true}, inferred, "ask confirmation_required@/irreversible confirmation_inferred"},
	} {
		r := request(event(t, "tool.invoked", tt.set))
		r.Strict, r.Profile, r.Confirmations, r.Now = tt.strict, tt.profile, &knows{word: tt.word}, noon
		if _, o := (Evaluator{}).Read(r); said(o) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, said(o), tt.want)
		}
	}
}

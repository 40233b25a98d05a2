package aana

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aana"
)

// letters are the names of the hard blockers in the contract's own table.
var letters = map[string]string{
	"P": CodeNotAuthenticated, "A": CodeNoAuthorization, "V": CodeNoValidation, "X": CodeNoConfirmation, "H": CodeHighRisk, "U": CodeUnknownCategory,
	"N": CodeUnsupported, "R": CodeRuntimeRefusal, "M": CodeNoRefs, "I": CodeMisclassified,
}

// spell turns "ask H,X" into the words of an answer.
func spell(short string) string {
	route, blockers, _ := strings.Cut(short, " ")
	words := []string{route}
	for _, l := range strings.FieldsFunc(blockers, func(r rune) bool { return r == ',' }) {
		code := letters[l]
		if code == "" {
			code = l
		}
		words = append(words, code)
	}
	return strings.Join(words, " ")
}

// step3 is the table of step 3 as the contract prints it, one line a row.
var step3 = map[string]string{
	"public_read":     "accept | accept | accept | accept | accept",
	"private_read":    "defer P | ask P | accept | accept | accept",
	"write":           "defer A | ask V | ask V | ask X | accept",
	"write high-risk": "defer H,X | ask H,X,V | ask H,X,V | ask H,X | accept",
	"unknown":         "defer U | defer U | defer U | defer U | defer U",
}

// Evidence can remove every ask of the table, and nothing stricter than it.
func TestEvidenceCodes(t *testing.T) {
	asks := wordSet(reasonCoerced, reasonGateFails)
	for _, row := range []stateRow{routeMatrix[wire.PrivateRead], routeMatrix[wire.Write], highRiskRow} {
		for _, cell := range row {
			for _, code := range cell.blockers {
				if cell.route == wire.Ask {
					asks[code] = true
				}
			}
		}
	}
	if d := cmp.Diff(asks, Companion.EvidenceCodes); d != "" {
		t.Error(d)
	}
}

// TestEveryCell decides on every category, state, route and risk with evidence
// that supports the state, under both profiles.
func TestEveryCell(t *testing.T) {
	for name, line := range step3 {
		category, risky, _ := strings.Cut(name, " ")
		for i, short := range strings.Split(line, " | ") {
			state := wire.States()[i]
			for _, route := range []wire.Route{wire.Accept, wire.Ask, wire.Defer, wire.Refuse} {
				for _, p := range profiles {
					in := event(wire.Category(category), state, doc{"recommended_route": string(route)})
					if risky != "" {
						in["tool_name"] = "purchase_stamps"
					}
					want := spell(short)
					own, rest, _ := strings.Cut(want, " ")
					final := wire.Stricter(wire.Route(own), wire.Coerce(wire.Category(category), state, route))
					if route == wire.Refuse {
						rest = strings.TrimSpace(rest + " " + CodeRuntimeRefusal)
					}
					want = strings.TrimSpace(string(final) + " " + rest)
					d := decide(t, p, in)
					if d.said() != want || string(d.Envelope.AANARoute) != own {
						t.Errorf("%s %s %s %s: %s (own %s), want %s", p, name, state, route, d.said(), d.Envelope.AANARoute, want)
					}
					checkGate(t, d)
				}
			}
		}
	}
}

// checkGate holds the six conditions of execution together.
func checkGate(t *testing.T, d decided) {
	t.Helper()
	e := d.Envelope
	accepted := e.Action == wire.Accept && len(e.Blockers) == 0 && len(e.Errors) == 0
	if (e.Gate == "pass") != accepted || e.Execution.Allowed != accepted || e.Execution.AANAAllows != accepted || e.Execution.FailClosed == accepted {
		t.Errorf("gate %s, execution %v for %s", e.Gate, e.Execution.Allowed, d.said())
	}
	if (d.Opinion.Verdict == "allow") != accepted {
		t.Errorf("verdict %s for %s", d.Opinion.Verdict, d.said())
	}
	if e.Route != e.Action || e.Architecture.Route != e.Action || e.AIx.Decision != e.Action || e.Architecture.Gate != e.Gate || e.Architecture.Audit.Route != e.Action {
		t.Errorf("the parts of the envelope disagree: %+v", e)
	}
	for _, list := range [][]string{e.AIx.Blockers, e.Architecture.Blockers, e.Architecture.Audit.Blockers} {
		if diff := cmp.Diff(e.Blockers, list); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReasonsOfTheTable(t *testing.T) {
	want := map[wire.Category][]string{
		wire.PublicRead: {"public_read_allowed_without_identity_auth", "public_read_allowed_without_identity_auth"},
		wire.PrivateRead: {"private_read_missing_authorization_context", "private_read_needs_verified_authentication", "private_read_has_authenticated_context",
			"private_read_has_authenticated_context", "private_read_has_authenticated_context"},
		wire.Write: {"write_missing_authorization_context", "write_needs_validation_and_confirmation", "write_needs_validation_and_confirmation",
			"write_validated_but_needs_explicit_confirmation", "write_has_explicit_confirmation"},
		wire.Unknown: {"unknown_tool_category_requires_review"},
	}
	for c, list := range want {
		for i, reason := range list {
			if d := decide(t, hard, event(c, wire.States()[i])); d.Envelope.Reasons[0] != reason {
				t.Errorf("%s %s: %v", c, wire.States()[i], d.Envelope.Reasons)
			}
		}
	}
	for i, reason := range []string{reasonHighRisk, reasonHighRisk, reasonHighRisk, reasonHighRisk, "write_has_explicit_confirmation"} {
		if d := decide(t, hard, event(wire.Write, wire.States()[i], doc{"risk_domain": "finance"})); d.Envelope.Reasons[0] != reason {
			t.Errorf("%s: %v", wire.States()[i], d.Envelope.Reasons)
		}
	}
	if c := lookupCell("admin", false, wire.Confirmed); c.route != wire.Refuse {
		t.Error("a category in no table is not refused")
	}
	if c := lookupCell(wire.Write, true, "approved"); c.route != wire.Refuse {
		t.Error("a state in no table is not refused")
	}
}

func TestEffectiveAuthorization(t *testing.T) {
	report := func(declared, supported, effective wire.State, downgraded bool, support ...wire.State) AuthorizationReport {
		return AuthorizationReport{declared, supported, effective, append([]wire.State{}, support...), downgraded}
	}
	const n, u, a, v, c = wire.None, wire.UserClaimed, wire.Authenticated, wire.Validated, wire.Confirmed
	for name, k := range map[string]struct {
		declared wire.State
		evidence []any
		hard     AuthorizationReport
		sdk      AuthorizationReport
	}{
		"no evidence, no downgrade":            {c, refs(), report(c, n, c, false), report(c, n, c, false)},
		"nothing supports it":                  {a, refs(ref("audit_record")), report(a, n, u, true), report(a, n, u, true)},
		"less supports it":                     {c, refs(ref("auth_event")), report(c, a, a, true, a), report(c, a, a, true, a)},
		"exactly":                              {a, refs(ref("auth_event")), report(a, a, a, false, a), report(a, a, a, false, a)},
		"more supports it":                     {a, refs(ref("approval")), report(a, c, a, false, c), report(a, c, a, false, c)},
		"none is raised by the reference only": {n, refs(ref("auth_event")), report(n, a, n, false, a), report(n, a, a, false, a)},
		"user_claimed never is":                {u, refs(ref("auth_event")), report(u, a, u, false, a), report(u, a, u, false, a)},
		"user_claimed never falls":             {u, refs(ref("audit_record")), report(u, n, u, false), report(u, n, u, false)},
		"once each, the weakest first":         {c, append(proof(c), proof(c)...), report(c, c, c, false, u, a, v, c), report(c, c, c, false, u, a, v, c)},
	} {
		t.Run(name, func(t *testing.T) {
			in := event(wire.PrivateRead, k.declared, doc{"evidence_refs": k.evidence, "recommended_route": "ask"})
			if diff := cmp.Diff(k.hard, *decide(t, hard, in).Envelope.Authorization); diff != "" {
				t.Error("hardened", diff)
			}
			if diff := cmp.Diff(k.sdk, *decide(t, sdk, in).Envelope.Authorization); diff != "" {
				t.Error("reference-sdk", diff)
			}
		})
	}
}

// TestTriggers: what of one reference supports which state.
func TestTriggers(t *testing.T) {
	for name, k := range map[string]struct {
		ref       doc
		hard, sdk string
	}{
		"user message":                     {ref("user_message"), "user_claimed", "user_claimed"},
		"trust user_claimed":               {ref("other", doc{"trust_tier": "user_claimed"}), "user_claimed", "user_claimed"},
		"says user claimed":                {ref("other", doc{"summary": "User claimed it."}), "", "user_claimed"},
		"auth event":                       {ref("auth_event"), "authenticated", "authenticated"},
		"auth event of the runtime":        {ref("auth_event", doc{"trust_tier": "runtime"}), "authenticated", "authenticated"},
		"auth event, unverified":           {ref("auth_event", doc{"trust_tier": "unverified"}), "", "authenticated"},
		"auth event, unknown":              {ref("auth_event", doc{"trust_tier": "unknown"}), "", "authenticated"},
		"auth event of the user":           {ref("auth_event", doc{"trust_tier": "user_claimed"}), "user_claimed", "user_claimed authenticated"},
		"says authenticated":               {ref("other", doc{"summary": "Authenticated."}), "", "authenticated"},
		"is called authenticated":          {ref("other", doc{"source_id": "x.authenticated"}), "", "authenticated"},
		"tool result":                      {ref("tool_result"), "", ""},
		"tool result, validated":           {ref("tool_result", doc{"summary": "Ownership Validated."}), "validated", "validated"},
		"tool result, validation":          {ref("tool_result", doc{"summary": "It has validation context."}), "", ""},
		"tool result, validated in its id": {ref("tool_result", doc{"source_id": "target.validated"}), "", "validated"},
		"tool result, unverified":          {ref("tool_result", doc{"summary": "validated", "trust_tier": "unverified"}), "", "validated"},
		"tool result, invalidated":         {ref("tool_result", doc{"summary": "The target was invalidated."}), "", "validated"},
		"tool result, ineligible":          {ref("tool_result", doc{"summary": "The client is ineligible."}), "", "validated"},
		"tool result, not eligible":        {ref("tool_result", doc{"summary": "The client is not eligible."}), "", "validated"},
		"tool result, verified target":     {ref("tool_result", doc{"summary": "A verified target."}), "validated", "validated"},
		"policy allows":                    {ref("policy", doc{"summary": "This is allowed."}), "", "validated"},
		"policy says validated":            {ref("policy", doc{"summary": "validated"}), "", "validated"},
		"other says validated":             {ref("other", doc{"summary": "validated"}), "", ""},
		"approval":                         {ref("approval"), "confirmed", "confirmed"},
		"approval of the runtime":          {ref("approval", doc{"trust_tier": "runtime"}), "confirmed", "confirmed"},
		"approval, unverified":             {ref("approval", doc{"trust_tier": "unverified"}), "", "confirmed"},
		"says confirmed":                   {ref("other", doc{"summary": "Confirmed."}), "", "confirmed"},
		"is called confirmed":              {ref("other", doc{"source_id": "approval:user-confirmed"}), "", "confirmed"},
		"says unconfirmed":                 {ref("other", doc{"summary": "It is unconfirmed."}), "", "confirmed"},
		"full-width":                       {ref("tool_result", doc{"summary": "ｖａｌｉｄａｔｅｄ"}), "validated", ""},
		"nothing":                          {ref("assistant_message"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for p, want := range map[string]string{"hardened": k.hard, "reference-sdk": k.sdk} {
				d := decide(t, call.Profile(p), event(wire.Unknown, wire.None, doc{"evidence_refs": refs(k.ref)}))
				var got []string
				for _, s := range d.Envelope.Authorization.Support {
					got = append(got, string(s))
				}
				if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
					t.Error(p, diff)
				}
			}
		})
	}
}

// TestDenialsSupportNothing: evidence of the right kind that says the opposite.
func TestDenialsSupportNothing(t *testing.T) {
	for kind, summaries := range map[string][]string{
		"approval": {
			"The owner has NOT confirmed the move.", "The action is unconfirmed.", "Not yet approved by the owner.", "Approval is pending.", "Confirmation was declined.",
			"Awaiting explicit approval.", "The owner declined.", "The customer has explicitly refused.", "No approval on record.", "Approval has been revoked.",
			"The user didn't confirm.", "The user didn’t confirm.", "Consent was withdrawn.", "ＮＯＴ approved.", "The approver rejected it.", "Pending final confirmation",
			"Unauthorized.", "Confirmation is still required.",
			"approved: false", "is_approved: false", "isApproved: False", "approval = false", `{"approved":false}`, `{"approved_by":null,"status":"open"}`, "confirmation: none", "Approved: no.", "The confirmation was false.",
			"status: rejected", `{"decision":"denied","by":"lee"}`, "rejected", "Denied.", "declined", "refused", "revoked", "Request withdrawn.", "vetoed by manager",
			"approval not given", "Approval was not obtained.", "awaiting sign-off", "expired approval", "The user said no.", "user has cancelled",
		},
		"auth_event":  {"Authentication failed.", "The user is not authenticated.", "Unauthenticated session.", "Login has expired.", "authenticated: false", "failed", "No verified session.", "Failed to verify the user.", "Unverified caller."},
		"tool_result": {"Ownership not validated.", "Eligibility denied: not eligible.", "Nobody validated the target.", "Unvalidated: validated is false, never validated."},
	} {
		for _, s := range summaries {
			d := decide(t, hard, event(wire.Unknown, wire.None, doc{"evidence_refs": refs(ref(kind, doc{"summary": s}))}))
			if d.Envelope.Authorization.Supported != wire.None {
				t.Errorf("%s %q supports %s", kind, s, d.Envelope.Authorization.Supported)
			}
		}
	}
	for kind, summaries := range map[string][]string{
		"approval": {
			"", "The client explicitly confirmed the hand-over.", "The owner confirmed that the note may go out.", "The shift manager confirmed the release of parcel 19.",
			"The manager approved it without changes.", "User confirmed the pending transfer.", "approved: true", "status: approved", `{"approved":true,"rejected":false}`, `{"approved":true,"approval_note":null}`,
			"Approved: no changes needed.", "The owner confirmed no objection.", "The manager approved the refund of the declined order.",
			"The required approval was given.", "Confirmed that the card expired.",
		},
		"auth_event": {"", "The clerk was authenticated; the checks of the target and a clear confirmation are missing.", "The counter verified the badge before the card was read."},
		"tool_result": {"Account ownership was checked.", "The target was validated; no confirmation so far.", "Order status: cancelled. Ownership validated.",
			"Ownership validated; mismatch: false."},
	} {
		for _, s := range summaries {
			d := decide(t, hard, event(wire.Unknown, wire.None, doc{"evidence_refs": refs(ref(kind, doc{"summary": s}))}))
			if d.Envelope.Authorization.Supported == wire.None {
				t.Errorf("%s %q supports nothing", kind, s)
			}
		}
	}
}

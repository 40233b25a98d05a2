package aump

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/events"
	wire "github.com/countersign-dev/countersign/events/aump"
)

const good = `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"ID","hash":"HASH","version":"0.1.0"},` +
	`"proposed_action":{"type":"book_courier","summary":"hunter2-secret","amount":{"currency":"EUR","total_minor":3e2}},"context":{"confidence":0.9}}`

func body(m *mandate.Mandate, edits ...string) []byte {
	text := strings.NewReplacer("ID", m.ID, "HASH", m.Hash).Replace(good)
	for i := 0; i+1 < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			panic("no " + edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return []byte(text)
}

func TestCall(t *testing.T) {
	m := compiled(t, courier)
	r := request(holding(m), body(m, `"type":"book_courier"`, `"type":"book_courier","counterparty":"van-7","commitment":true`), noon)
	r.Header[events.HeaderAgent] = []string{"agent-courier"}
	r.Header["traceparent"] = []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	r.Records.Approvals = trusting{}
	a := ask(t, r)
	got := a.call
	want := call.Call{
		EventType: wire.TypeRequest, Session: "s1", Agent: "agent-courier", ToolCallID: "c1", Tool: "book_courier", Action: ActionCommit,
		Resource: "van-7", Risk: map[string]any{"commitment": true},
		ArgsClaims:    []string{"commitment", "summary"},
		ArgsCanonical: []byte(`{"amount":{"currency":"EUR","total_minor":300},"commitment":true,"counterparty":"van-7","summary":"hunter2-secret","type":"book_courier"}`),
		Traceparent:   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Mandate:       &events.MandateRef{ID: m.ID, Hash: m.Hash},
		Args:          got.Args, Event: got.Event, ProtocolState: got.ProtocolState, Reservation: got.Reservation,
	}
	if d := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "ProtocolState" }, cmp.Ignore())); d != "" {
		t.Error(d)
	}
	if a.String() != "allowed [] []" || a.recorded() != "within_mandate@" {
		t.Errorf("%s; %s", a, a.recorded())
	}
}

type trusting struct{}

func (trusting) Consent(mandate.Proposal) mandate.PrincipalConsent {
	return mandate.PrincipalConsent{TrustedUI: true, Approved: true}
}

// TestProposal: the records are asked about exactly this action.
func TestProposal(t *testing.T) {
	m := compiled(t, courier)
	s := holding(m)
	s.asked = &mandate.Proposal{}
	a := ask(t, request(s, body(m), noon))
	want := mandate.Proposal{
		Tenant: "acme", Source: "rt1", Session: "s1", ToolCallID: "c1", MandateID: m.ID, MandateHash: m.Hash, Currency: "EUR", Action: a.call.ArgsCanonical,
	}
	if d := cmp.Diff(want, *s.asked); d != "" || len(want.Action) == 0 {
		t.Error(d)
	}
}

// TestNotes: what is only recorded.
func TestNotes(t *testing.T) {
	m := compiled(t, courier, "preferences.hard_constraints", `[{"id":"a","description":"in words"}]`)
	s := holding(m)
	r := request(s, body(m, `"confidence":0.9`, `"trusted_ui_approved":true,"approval":1`), noon)
	r.Header = nil
	a := ask(t, r)
	const want = "unevaluated_constraints@$.preferences.hard_constraints[0] context_claims_ignored@$.context within_mandate@ tool_call_id_missing@ weak_scope@"
	if a.String() != "allowed [] []" || a.recorded() != want {
		t.Errorf("%s; %s", a, a.recorded())
	}
	context := a.call.Event["context"].(map[string]any)
	if len(context) != 0 {
		t.Errorf("policies see claims: %v", context)
	}
	s.spend = map[string]mandate.Spend{"EUR": {Settled: 19900}}
	if a := ask(t, request(s, body(m), noon)); !strings.Contains(a.recorded(), "cumulative_spend@") || a.reply["decision"] != wire.Denied {
		t.Errorf("%s; %s", a, a.recorded())
	}
	signed := compiled(t, courier, "signatures", `[{"type":"jws","alg":"EdDSA","kid":"k","value":"v"}]`)
	if a := ask(t, request(holding(signed), body(signed), noon)); !strings.Contains(a.recorded(), "signature_not_verified@$.signatures") || a.String() != "allowed [] []" {
		t.Errorf("%s; %s", a, a.recorded())
	}
}

// TestBadInput: the protocol's own refusal for whatever is no request, with the
// code and place in the record, and nothing of the input in the reply.
func TestBadInput(t *testing.T) {
	m := compiled(t, courier)
	for name, tc := range map[string]struct {
		body   string
		reason string // the first in the record
		paths  string // in the reply
	}{
		"empty":                    {"", "not_json@", "[$]"},
		"null":                     {"null", "not_object@", "[$]"},
		"a text":                   {`"allow"`, "not_object@", "[$]"},
		"a list":                   {"[]", "not_object@", "[$]"},
		"an empty object":          {"{}", "schema_invalid@", "[$]"},
		"cut short":                {string(body(m))[:80], "not_json@/mandate_ref", "[$]"},
		"two documents":            {string(body(m)) + string(body(m)), "trailing_data@", "[$]"},
		"not UTF-8":                {"{\"a\":\"\xff\"}", "invalid_utf8@", "[$]"},
		"a key twice":              {string(body(m, `"context":`, `"context":{},"context":`)), "duplicate_key@/context", "[$]"},
		"a key in another case":    {string(body(m, `"context":`, `"Context":{},"context":`)), "case_collision@/context", "[$]"},
		"too deep":                 {strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "too_deep@" + strings.Repeat("/a", 64), "[$]"},
		"unsafe integer":           {string(body(m, "3e2", "9007199254740993")), "unsafe_integer@/proposed_action/amount/total_minor", "[$]"},
		"extra key":                {string(body(m, `"context":`, `"decision":"allowed","context":`)), "schema_invalid@/decision", "[$]"},
		"another message":          {string(body(m, "action_evaluation_request", "action_evaluation_response")), "schema_invalid@/aump/type", "[$]"},
		"unknown version":          {string(body(m, `"aump":{"version":"0.1.0"`, `"aump":{"version":"9.0.0"`)), "unknown_schema_version@/aump/version", "[$]"},
		"unknown mandate version":  {string(body(m, `"version":"0.1.0"},"proposed`, `"version":"1"},"proposed`)), "unknown_schema_version@/mandate_ref/version", "[$]"},
		"no action":                {string(body(m, `"proposed_action"`, `"action"`)), "schema_invalid@", "[$]"},
		"action null":              {string(body(m, `"proposed_action":{"type":"book_courier","summary":"hunter2-secret","amount":{"currency":"EUR","total_minor":3e2}}`, `"proposed_action":null`)), "schema_invalid@/proposed_action", "[$]"},
		"amount null":              {string(body(m, `{"currency":"EUR","total_minor":3e2}`, "null")), "schema_invalid@/proposed_action/amount", "[$]"},
		"amount below zero":        {string(body(m, "3e2", "-1")), "schema_invalid@/proposed_action/amount/total_minor", "[$]"},
		"amount in fractions":      {string(body(m, "3e2", "0.5")), "schema_invalid@/proposed_action/amount/total_minor", "[$]"},
		"amount as text":           {string(body(m, "3e2", `"300"`)), "schema_invalid@/proposed_action/amount/total_minor", "[$]"},
		"commitment as text":       {string(body(m, `"summary":`, `"commitment":"false","summary":`)), "schema_invalid@/proposed_action/commitment", "[$]"},
		"confidence as text":       {string(body(m, "0.9", `"0.9"`)), "schema_invalid@/context/confidence", "[$]"},
		"more than sure":           {string(body(m, "0.9", "9")), "schema_invalid@/context/confidence", "[$]"},
		"context null":             {string(body(m, `{"confidence":0.9}`, "null")), "schema_invalid@/context", "[$]"},
		"counterparty null":        {string(body(m, `"summary":`, `"counterparty":null,"summary":`)), "schema_invalid@/proposed_action/counterparty", "[$]"},
		"factors null":             {string(body(m, `"summary":`, `"decision_factors":null,"summary":`)), "schema_invalid@/proposed_action/decision_factors", "[$]"},
		"reference as text":        {string(body(m, `{"id":"`+m.ID+`","hash":"`+m.Hash+`","version":"0.1.0"}`, `"`+m.ID+`"`)), "schema_invalid@/mandate_ref", "[$]"},
		"no hash":                  {string(body(m, `"hash":"`+m.Hash+`",`, "")), "schema_invalid@$.mandate_ref.hash", "[$.mandate_ref.hash]"},
		"hash empty":               {string(body(m, m.Hash, "")), "schema_invalid@$.mandate_ref.hash", "[$.mandate_ref.hash]"},
		"hash null":                {string(body(m, `"`+m.Hash+`"`, "null")), "schema_invalid@/mandate_ref/hash", "[$]"},
		"hash of another form":     {string(body(m, "sha256-", "sha256:")), "schema_invalid@$.mandate_ref.hash", "[$.mandate_ref.hash]"},
		"type beyond all measures": {string(body(m, "book_courier", strings.Repeat("x", 600))), "field_too_long@/proposed_action/type", "[$]"},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, request(holding(m), []byte(tc.body), noon))
			if a.reply["decision"] != wire.Denied || strictStrings(a.reply["reason_codes"])[0] != CodeSchemaInvalid || !a.opinion.Malformed || a.opinion.Verdict != events.Deny {
				t.Errorf("%s %+v", a, a.opinion)
			}
			if got := strings.Fields(a.recorded())[0]; got != tc.reason {
				t.Errorf("recorded %s, want %s", got, tc.reason)
			}
			if got := strings.TrimPrefix(a.String(), "denied [schema_invalid] "); got != tc.paths {
				t.Errorf("paths %s, want %s", got, tc.paths)
			}
			if bytes.Contains(a.raw, []byte(secret)) || a.call.Mandate != nil {
				t.Errorf("%s", a.raw)
			}
		})
	}
}

// TestStoredMandateIsBad: a mandate that breaks the schema decides nothing but
// that.
func TestStoredMandateIsBad(t *testing.T) {
	for name, edits := range map[string][]string{
		"unknown version": {"aump.version", `"9"`}, "budget null": {"authority.budget", "null"}, "leap second": {"expires_at", `"2026-12-31T23:59:60Z"`},
		"unknown operator": {"preferences.hard_constraints", `[{"id":"a","description":"d","field":"terms.x","op":"like","value":1}]`},
		"no head":          {"aump", ""}, "an empty currency": {"authority.budget.currency", `""`},
	} {
		m := compiled(t, courier, edits...)
		a := ask(t, request(holding(m), body(m), noon))
		if a.String() != "denied [schema_invalid] [$]" || a.opinion.Malformed || len(m.Violations) == 0 {
			t.Errorf("%s: %s", name, a)
		}
	}
}

func TestReferenceInHeaders(t *testing.T) {
	m := compiled(t, courier)
	for _, tc := range []struct{ header, value, want string }{
		{wire.HeaderMandateID, m.ID, "allowed [] []"}, {wire.HeaderMandateHash, m.Hash, "allowed [] []"}, {wire.HeaderMandateVersion, "0.1.0", "allowed [] []"},
		{wire.HeaderMandateID, "aump_mnd_x", "denied [schema_invalid] [$]"}, {wire.HeaderMandateHash, m.Hash + "0", "denied [schema_invalid] [$]"},
		{wire.HeaderMandateVersion, "0.2.0", "denied [schema_invalid] [$]"},
	} {
		r := request(holding(m), body(m), noon)
		r.Header[tc.header] = []string{tc.value}
		if a := ask(t, r); a.String() != tc.want {
			t.Errorf("%s %s: %s", tc.header, tc.value, a)
		}
	}
}

// TestReplyRepeatsTheVersion: a reply names the version that its request named,
// also to refuse it, and the only known one where the request named none.
func TestReplyRepeatsTheVersion(t *testing.T) {
	m := compiled(t, courier)
	member := `,"version":"0.1.0"},"proposed`
	for _, tc := range []struct{ body, header, want, decision string }{
		{"0.1.0", "", "0.1.0", "allowed"}, {"", "", "0.1.0", "allowed"}, {"", "0.1.0", "0.1.0", "allowed"},
		{"0.2.0", "", "0.2.0", "denied"}, {"1", "", "1", "denied"}, {"", "0.2.0", "0.2.0", "denied"}, {"0.2.0", "0.1.0", "0.2.0", "denied"},
		{strings.Repeat("9", call.MaxField+1), "", "0.1.0", "denied"}, {"", strings.Repeat("9", call.MaxField+1), "0.1.0", "denied"},
	} {
		text := `},"proposed`
		if tc.body != "" {
			text = `,"version":"` + tc.body + `"},"proposed`
		}
		r := request(holding(m), body(m, member, text), noon)
		if tc.header != "" {
			r.Header[wire.HeaderMandateVersion] = []string{tc.header}
		}
		a := ask(t, r)
		ref, _ := a.reply["mandate_ref"].(map[string]any)
		if ref["version"] != tc.want || a.reply["decision"] != tc.decision {
			t.Errorf("%.20q, header %.20q: version %.20v, %v; want %s, %s", tc.body, tc.header, ref["version"], a.reply["decision"], tc.want, tc.decision)
		}
	}
}

// TestTightened: a stricter consolidated verdict stands in the body.
func TestTightened(t *testing.T) {
	m := compiled(t, courier, "escalation.approval_timeout_seconds", "600")
	for _, tc := range []struct {
		verdict events.Verdict
		reasons []events.Reason
		text    string
		want    string
	}{
		{events.Deny, nil, "denied_by_policy", "denied [scope_violation denied_by_policy] [$.proposed_action]"},
		{events.Deny, nil, "No vans on Sundays.", "denied [scope_violation] [$.proposed_action]"},
		{events.Deny, nil, "no_policy", "denied [scope_violation no_policy] [$.proposed_action]"},
		{events.Deny, []events.Reason{{Evaluator: "admission", Code: "audit_unavailable"}}, "audit_unavailable", "denied [audit_unavailable] [$.proposed_action]"},
		{events.Ask, nil, "approval_required", "requires_escalation [escalation_required approval_required] [$.proposed_action]"},
		{events.Defer, nil, "", "requires_escalation [escalation_required] [$.proposed_action]"},
	} {
		c, o := Evaluator{}.Read(request(holding(m), body(m), noon))
		o.Reasons = append(o.Reasons, tc.reasons...)
		a := reply(t, c, o, tc.verdict, tc.text)
		if a.String() != tc.want || strings.Contains(string(a.raw), "Sundays") {
			t.Errorf("%s %s: %s", tc.verdict, tc.text, a.raw)
		}
		if _, asks := a.reply["required_escalation"]; asks != (tc.verdict != events.Deny) {
			t.Errorf("%s", a.raw)
		}
	}
	// A denial of the mandate's own is not replaced.
	c, o := Evaluator{}.Read(request(holding(m), envelope(m, dear, ""), noon))
	if a := reply(t, c, o, events.Deny, "denied_by_policy"); a.String() != "denied [hard_constraint_violation price_above_budget] ["+sharedBudget+"]" {
		t.Error(a)
	}
}

func TestReplyWithoutEvaluation(t *testing.T) {
	a := reply(t, call.Call{}, call.Opinion{Reasons: []events.Reason{{Evaluator: "admission", Code: "unknown_source"}}}, events.Deny, "unknown_source")
	if a.String() != "denied [unknown_source] [$.proposed_action]" {
		t.Error(a)
	}
	if b, err := (Evaluator{}).Reply(call.Call{}, events.Decision{Verdict: events.Allow}, ""); err == nil {
		t.Errorf("%s", b)
	}
}

func TestEscalation(t *testing.T) {
	left := 20 * time.Hour
	for name, tc := range map[string]struct {
		edits    []string
		channel  string
		patience time.Duration
	}{
		"the mandate's own time":     {[]string{"escalation.approval_timeout_seconds", "900"}, "app", 15 * time.Minute},
		"no time":                    {nil, "app", 0},
		"longer than the mandate":    {[]string{"escalation.approval_timeout_seconds", "9007199254740991"}, "app", left},
		"no time at all":             {[]string{"escalation.approval_timeout_seconds", "0"}, "app", 1},
		"a mode that reaches nobody": {[]string{"escalation.contact_modes", `["none","sms"]`}, "sms", 0},
		"no mode":                    {[]string{"escalation.contact_modes", `[]`}, "", 0},
	} {
		m := compiled(t, courier, append(tc.edits, "escalation.required_conditions", `["x"]`)...)
		a := ask(t, request(holding(m), envelope(m, book, `{"conditions":["x"]}`), noon))
		got := a.reply["required_escalation"].(map[string]any)
		channel, _ := got["channel"].(string)
		if channel != tc.channel || got["expires_at"] != "2026-11-20T12:10:00.000000000Z" || got["prompt"] == "" {
			t.Errorf("%s: %v", name, got)
		}
		if a.opinion.ApprovalWindow != tc.patience || !a.opinion.NotAfter.Equal(m.ExpiresAt) {
			t.Errorf("%s: %s, %s", name, a.opinion.ApprovalWindow, a.opinion.NotAfter)
		}
		if a := ask(t, request(holding(m), envelope(m, dear, `{"conditions":["x"]}`), noon)); a.opinion.ApprovalWindow != 0 || !a.opinion.NotAfter.IsZero() {
			t.Errorf("%s: a denial that waits", name)
		}
	}
}

// TestGoldenReplies: the exact bytes.
func TestGoldenReplies(t *testing.T) {
	m := compiled(t, courier, "escalation.required_conditions", `["x"]`, "escalation.approval_timeout_seconds", "60")
	head := `{"aump":{"version":"0.1.0","type":"action_evaluation_response"},"mandate_ref":{"id":"aump_mnd_courier_01","hash":"` + m.Hash + `","version":"0.1.0"},`
	for _, tc := range []struct{ body, want string }{
		{string(envelope(m, book, "")), head + `"decision":"allowed","reason_codes":[],"paths":[],"summary":"Allowed under the mandate."}`},
		{string(envelope(m, book, `{"conditions":["x"]}`)), head + `"decision":"requires_escalation","reason_codes":["escalation_required"],"paths":["$.escalation.required_conditions"],` +
			`"summary":"Ask for a trusted review before going on: escalation_required.","required_escalation":{"channel":"app",` +
			`"prompt":"An action under mandate aump_mnd_courier_01 waits for a trusted review: escalation_required.","expires_at":"2026-11-20T12:10:00.000000000Z"}}`},
		{string(envelope(m, dear, "")), head + `"decision":"denied","reason_codes":["hard_constraint_violation","price_above_budget"],` +
			`"paths":["$.authority.budget.max_total_minor"],"summary":"Denied: hard_constraint_violation, price_above_budget."}`},
		{`{}`, `{"aump":{"version":"0.1.0","type":"action_evaluation_response"},"mandate_ref":{"id":"","hash":"","version":"0.1.0"},` +
			`"decision":"denied","reason_codes":["schema_invalid"],"paths":["$"],"summary":"Denied: schema_invalid."}`},
	} {
		if a := ask(t, request(holding(m), []byte(tc.body), noon)); string(a.raw) != tc.want {
			t.Errorf("%s\nwant %s", a.raw, tc.want)
		}
	}
	if m.Hash != goldenHash {
		t.Errorf("the hash is %s", m.Hash)
	}
}

const goldenHash = "sha256-7ac20f1661a03353cd9c3fbaeb70ec4efc121776d405981fb5f69b7cc6ff222a"

func TestNativeWords(t *testing.T) {
	for v, want := range map[events.Verdict]string{events.Allow: "allowed", events.Ask: "requires_escalation", events.Defer: "requires_escalation", events.Deny: "denied", "?": "denied"} {
		if got := (Evaluator{}).NativeVerdict(v); got != want {
			t.Errorf("%s: %s", v, got)
		}
	}
	if !(Evaluator{}).HasNativeEvaluator() {
		t.Error("the mandate is the policy")
	}
}

package admission

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events"
)

const bookVan = `{"aump":{"version":"0.1.0","type":"action_evaluation_request"},"mandate_ref":{"id":"aump_mnd_courier_01","hash":"HASH","version":"0.1.0"},` +
	`"proposed_action":{"type":"book_courier","summary":"hunter2-secret","amount":{"currency":"EUR","total_minor":1500}}}`

// known is a source of one mandate.
type known struct{ m *mandate.Mandate }

func (k known) Mandate(_, id, _ string) *mandate.Mandate {
	if id != k.m.ID {
		return nil
	}
	return k.m
}

// courierMandate is a mandate of the schemas' corpus for the agent that the tests'
// requests name, after edits.
func courierMandate(t testing.TB, edits ...string) *mandate.Mandate {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "schemas", "testdata", "corpus", "aump", "mandate", "valid", "minimal.json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := mandate.Compile([]byte(edit(t, string(b), append([]string{`"agent-courier"`, `"bot"`}, edits...)...)), nil)
	if err != nil || m.Violations != nil {
		t.Fatal(err, m)
	}
	return m
}

func bookingUnder(m *mandate.Mandate, edits ...string) (Request, Inputs) {
	body := strings.Replace(bookVan, "HASH", m.Hash, 1)
	for i := 0; i+1 < len(edits); i += 2 {
		body = strings.Replace(body, edits[i], edits[i+1], 1)
	}
	r := request(aump.Name, body)
	r.Header = map[string][]string{events.HeaderSession: {"s1"}, events.HeaderToolCallID: {"c1"}}
	in := inputs()
	in.Mandates.Mandates = known{m}
	return r, in
}

func TestMandateDecides(t *testing.T) {
	m := courierMandate(t)
	r, in := bookingUnder(m)
	out := Decide(r, EvaluatorsOnly(), in)
	if !strings.HasPrefix(codes(out), "allow within_mandate") {
		t.Error(codes(out))
	}
	want := events.MandateRef{ID: m.ID, Hash: m.Hash}
	if d := out.Decision; d.Mandate == nil || *d.Mandate != want || d.NativeVerdict != "allowed" || d.Tool != "book_courier" || d.ArgsDigest == "" ||
		out.Claims.Mandate == nil || *out.Claims.Mandate != want {
		t.Errorf("%+v %+v", out.Decision, out.Claims)
	}
	if reply := replyOf(t, out); reply["decision"] != "allowed" || reply["mandate_ref"].(map[string]any)["hash"] != m.Hash {
		t.Errorf("%v", reply)
	}
	noSecrets(t, out)
	for _, in := range []Inputs{inputs(), {}} {
		in.KnownTenant, in.Now = true, noon
		if out := Decide(r, EvaluatorsOnly(), in); out.Decision.Verdict != events.Deny || replyOf(t, out)["decision"] != "denied" {
			t.Error(codes(out))
		}
	}
}

// TestToolPoliciesTightenMandates: they see the action, and can only make the
// answer stricter.
func TestToolPoliciesTightenMandates(t *testing.T) {
	m := courierMandate(t)
	for _, tc := range []struct{ rule, edit, with, want string }{
		{"allow ok: true", "", "", "allowed []"},
		{"deny no: args.amount.total_minor > 1000", "", "", "denied [scope_violation denied_by_policy]"},
		{"deny no: args.amount.total_minor > 2000", "", "", "allowed []"},
		{"ask hm: risk.commitment == false", "", "", "requires_escalation [escalation_required approval_required]"},
		{"allow ok: true", "1500", "20001", "denied [hard_constraint_violation price_above_budget]"},
		{"deny no: tool == 'book_courier'", "1500", "20001", "denied [hard_constraint_violation price_above_budget]"},
	} {
		r, in := bookingUnder(m, tc.edit, tc.with)
		if tc.edit == "" {
			r, in = bookingUnder(m)
		}
		out := Decide(r, rules(t, tc.rule), in)
		reply := replyOf(t, out)
		if got := fmt.Sprint(reply["decision"], " ", reply["reason_codes"]); got != tc.want {
			t.Errorf("%s: %s, want %s (%s)", tc.rule, got, tc.want, codes(out))
		}
	}
	r, in := bookingUnder(m)
	if out := Decide(r, nil, in); fmt.Sprint(replyOf(t, out)["reason_codes"]) != "[scope_violation no_policy]" {
		t.Error(codes(out))
	}
	out := Decide(r, EvaluatorsOnly(), in)
	out.Fail(CodeAuditUnavailable)
	if fmt.Sprint(replyOf(t, out)["reason_codes"]) != "[audit_unavailable]" {
		t.Errorf("%v", replyOf(t, out))
	}
}

// TestLifetimesUnderAMandate: an allow does not outlive its mandate, and an
// approval stays open as long as the mandate says.
func TestLifetimesUnderAMandate(t *testing.T) {
	const expiry = `"expires_at": "2026-11-21T08:00:00Z"`
	at := func(s string) string { return `"expires_at": "` + s + `"` }
	ask := []string{`"mode": "delegated"`, `"mode": "supervised"`}
	timeout := func(n string) []string {
		return append(ask, `"contact_modes"`, `"approval_timeout_seconds": `+n+`, "contact_modes"`)
	}
	for name, tc := range map[string]struct {
		edits   []string
		commits bool
		verdict string // of a policy whose expiresAfter is 45s; none without one
		want    time.Duration
	}{
		"allow":                         {nil, false, "", receipt.DefaultLifetime},
		"allow, shortly before the end": {[]string{expiry, at("2026-11-20T12:00:20Z")}, false, "", 20 * time.Second},
		"allow, at the very end":        {[]string{expiry, at("2026-11-20T12:00:00.1Z")}, false, "", receipt.MinLifetime},
		"ask":                           {ask, true, "", DefaultApprovalLifetime},
		"ask, with time to think":       {timeout("3600"), true, "", time.Hour},
		"ask, without time to think":    {timeout("0"), true, "", receipt.MinLifetime},
		"ask, with more than there is":  {append(timeout("3600"), expiry, at("2026-11-20T12:10:00Z")), true, "", 10 * time.Minute},
		"ask, for days":                 {append(timeout("864000"), expiry, at("2027-11-20T12:10:00Z")), true, "", receipt.MaxLifetime},
		"a policy allows":               {nil, false, "allow", 45 * time.Second},
		"ask, and a policy allows":      {timeout("3600"), true, "allow", time.Hour},
		"ask, and so does a policy":     {timeout("3600"), true, "ask", 45 * time.Second},
		"ask, for less than a policy":   {timeout("30"), true, "ask", 30 * time.Second},
		"a policy alone asks":           {timeout("30"), false, "ask", 45 * time.Second},
	} {
		m := courierMandate(t, tc.edits...)
		r, in := bookingUnder(m)
		if tc.commits {
			r, in = bookingUnder(m, `"summary"`, `"commitment":true,"summary"`)
		}
		config := EvaluatorsOnly()
		if tc.verdict != "" {
			config = compiled(t, "apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  expiresAfter: 45s\n  rules:\n    - {name: r, when: 'true', verdict: "+tc.verdict+", reason: ok}\n")
		}
		out := Decide(r, config, in)
		if got := out.Decision.ExpiresAt.Sub(noon); got != tc.want || out.Claims.ExpiresAt != out.Decision.ExpiresAt {
			t.Errorf("%s: %s, want %s (%s)", name, got, tc.want, codes(out))
		}
		k, _ := signingKeys(t)
		if _, _, err := receipt.Issue(k, out.Claims); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if required, ok := replyOf(t, out)["required_escalation"].(map[string]any); ok != (tc.commits || tc.verdict == "ask") || ok && required["expires_at"] != out.Decision.ExpiresAt.String() {
			t.Errorf("%s: %v", name, required)
		}
	}
}

// TestApprovalIsOfOneMandate: the same action under another edition of the
// mandate is another action.
func TestApprovalIsOfOneMandate(t *testing.T) {
	ids := map[string]bool{}
	for _, budget := range []string{"20000", "30000"} {
		r, in := bookingUnder(courierMandate(t, `"max_total_minor": 20000`, `"max_total_minor": `+budget), `"summary"`, `"commitment":true,"summary"`)
		out := Decide(r, EvaluatorsOnly(), in)
		if out.Decision.Approval == nil {
			t.Fatal(codes(out))
		}
		ids[out.Decision.Approval.ActionID] = true
	}
	if len(ids) != 2 {
		t.Errorf("%v", ids)
	}
}

func TestEvaluateLineUnderMandates(t *testing.T) {
	m := courierMandate(t)
	body := strings.Replace(bookVan, "HASH", m.Hash, 1)
	for _, tc := range []struct {
		o    Offline
		want string
	}{
		{Offline{Mandates: known{m}}, `{"verdict":"allow","reply":{"aump"`},
		{Offline{}, `{"verdict":"deny","reply":{"aump"`},
	} {
		tc.o.Protocol, tc.o.Now = aump.Name, noon
		line := EvaluateLine([]byte(body), tc.o)
		if !strings.HasPrefix(string(line), tc.want) || !json.Valid(line) {
			t.Errorf("%s", line)
		}
	}
}

package aump

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
	wire "github.com/countersign-dev/countersign/events/aump"
)

// Every test in this file is one way in which a gate like this one was, or could
// be, bypassed.

func want(t *testing.T, name string, a answer, prefix string) {
	t.Helper()
	if !strings.HasPrefix(a.String(), prefix) {
		t.Errorf("%s: %s", name, a)
	}
}

func TestBypassAgentApprovesItself(t *testing.T) {
	m := compiled(t, courier, with("authority.requires_trusted_ui_for_commitment", "true", "authority.prohibited_actions", `["accept_deal_without_approval"]`)...)
	for _, context := range []string{`{"trusted_ui_approved":true,"approval":true}`, `{"trusted_ui_approved":true,"approval":{"status":"approved"}}`} {
		a := ask(t, request(holding(m), envelope(m, deal, context), noon))
		want(t, context, a, "requires_escalation")
		if !strings.Contains(a.recorded(), CodeClaimsIgnored) {
			t.Error("the claim is not recorded")
		}
	}
}

func TestBypassApprovalOfAnotherAction(t *testing.T) {
	m := compiled(t, courier, with("authority.requires_trusted_ui_for_commitment", "true")...)
	s := holding(m)
	r := request(s, envelope(m, deal, ""), noon)
	r.Records.Approvals = only{string(`{"summary":"Take it.","type":"accept_deal"}`)}
	want(t, "the action that was approved", ask(t, r), "allowed")
	r.Body = envelope(m, `{"type":"accept_deal","summary":"Take all of it."}`, "")
	want(t, "another one", ask(t, r), "requires_escalation")
}

// only approves one action.
type only struct{ action string }

func (o only) Consent(p mandate.Proposal) mandate.PrincipalConsent {
	same := string(p.Action) == o.action && p.MandateHash != ""
	return mandate.PrincipalConsent{TrustedUI: same, Approved: same}
}

func TestBypassTextThatSaysFalse(t *testing.T) {
	m := compiled(t, courier, with()...)
	for _, member := range []string{`"commitment":"false"`, `"commitment":0`, `"commitment":null`} {
		a := ask(t, request(holding(m), envelope(m, `{"type":"book_courier","summary":"s",`+member+`}`, ""), noon))
		want(t, member, a, "denied [schema_invalid]")
	}
}

func TestBypassTenPurchasesUnderOneBudget(t *testing.T) {
	m := compiled(t, courier)
	s := holding(m)
	allowed, reserved := 0, int64(0)
	for range 10 {
		s.spend = map[string]mandate.Spend{"EUR": {Reserved: reserved}}
		if a := ask(t, request(s, envelope(m, `{"type":"book_courier","summary":"s","amount":{"currency":"EUR","total_minor":9000}}`, ""), noon)); a.reply["decision"] == wire.Allowed {
			allowed, reserved = allowed+1, reserved+9000
		}
	}
	if allowed != 2 {
		t.Errorf("%d purchases of 90.00 under 200.00", allowed)
	}
}

func TestBypassCommitmentNotCalledOne(t *testing.T) {
	m := compiled(t, courier)
	s := holding(m)
	s.spend = map[string]mandate.Spend{"EUR": {Settled: 20000}}
	want(t, "spending without commitment", ask(t, request(s, envelope(m, `{"type":"book_courier","summary":"s","commitment":false,"amount":{"currency":"EUR","total_minor":1}}`, ""), noon)), "denied")
	m = compiled(t, courier, with("authority.mode", `"supervised"`)...)
	want(t, "a deal that commits to nothing", ask(t, request(holding(m), envelope(m, `{"type":"accept_deal","summary":"s","commitment":false}`, ""), noon)), "requires_escalation")
}

func TestBypassMandateSwapped(t *testing.T) {
	strict, loose := compiled(t, courier), compiled(t, courier, "authority.budget.max_total_minor", "900000")
	a := ask(t, request(holding(strict), envelope(loose, dear, ""), noon))
	want(t, "the hash of a looser edition", a, "denied [mandate_not_found")
	other := compiled(t, courier, "id", `"aump_mnd_other"`)
	want(t, "the id of nothing", ask(t, request(holding(strict), envelope(other, book, ""), noon)), "denied [mandate_not_found] [$.mandate_ref.id]")
	s := store{mandates: map[string]*mandate.Mandate{"acme/" + strict.ID: other}}
	want(t, "a store that gives another mandate", ask(t, request(s, envelope(strict, book, ""), noon)), "denied [mandate_not_found] [$.mandate_ref.id]")
	r := request(holding(strict), envelope(strict, book, ""), noon)
	r.Tenant = "evil"
	want(t, "a mandate of another tenant", ask(t, r), "denied [mandate_not_found]")
}

func TestBypassHashThatNobodyCompares(t *testing.T) {
	m := compiled(t, courier)
	body := string(envelope(m, book, ""))
	for name, hash := range map[string]string{"placeholder": "sha256-example", "empty": "", "a prefix": m.Hash[:20], "of a plain digest": strings.Replace(m.Hash, "-", ":", 1)} {
		want(t, name, ask(t, request(holding(m), []byte(strings.Replace(body, m.Hash, hash, 1)), noon)), "denied [schema_invalid] [$.mandate_ref.hash]")
	}
	want(t, "digits in upper case are the same hash", ask(t, request(holding(m), []byte(strings.Replace(body, m.Hash, upperHash(m.Hash), 1)), noon)), "allowed")
}

func TestBypassMandateFromTheFutureOrThePast(t *testing.T) {
	m := compiled(t, courier)
	for name, at := range map[string]time.Time{
		"before it was issued": m.IssuedAt.Add(-time.Nanosecond), "at expiry": m.ExpiresAt, "long ago": {}, "in another zone": m.ExpiresAt.In(time.FixedZone("w", -11*3600)),
	} {
		want(t, name, ask(t, request(holding(m), envelope(m, book, ""), at)), "denied [mandate_")
	}
}

func TestBypassAbsentEmptyOrNullOperand(t *testing.T) {
	constraint := `[{"id":"c","description":"d","field":"attributes.load.kg","op":"%s","value":%s}]`
	for op, value := range map[string]string{"lte": "80", "ne": "80", "not_in": "[80]", "eq": "80", "in": "[80]"} {
		m := compiled(t, courier, "preferences.hard_constraints", fmt.Sprintf(constraint, op, value))
		for _, attributes := range []string{"", `,"attributes":{}`, `,"attributes":{"load":{}}`, `,"attributes":{"load":{"kg":null}}`, `,"attributes":{"load":80}`,
			`,"attributes":{"load.kg":1}`, `,"attributes":{"load":[{"kg":1}]}`, `,"attributes":{"load":{"kg":"1"}}`, `,"attributes":{"load":{"kg":[1]}}`, `,"terms":{"load":{"kg":1}}`} {
			a := ask(t, request(holding(m), envelope(m, `{"type":"book_courier","summary":"s"`+attributes+`}`, ""), noon))
			want(t, op+attributes, a, "denied [hard_constraint_violation] [$.preferences.hard_constraints[0]]")
		}
	}
	for _, broken := range []string{`[{"id":"c","description":"d","field":"attributes.x","op":"lte"}]`, `[{"id":"c","description":"d","op":"exists"}]`,
		`[{"id":"c","description":"d","field":"attributes.x","op":"in","value":[]}]`, `[{"id":"c","description":"d","field":"attributes.x","op":"lte","value":null}]`} {
		m := compiled(t, courier, "preferences.hard_constraints", broken)
		want(t, broken, ask(t, request(holding(m), envelope(m, book, ""), noon)), "denied [schema_invalid] [$]")
	}
}

func TestBypassNobodyNamed(t *testing.T) {
	commit := `{"type":"book_courier","summary":"s","commitment":true%s}`
	m := compiled(t, courier, with("purpose.allowed_counterparties", `["van-7"]`)...)
	for _, party := range []string{"", `,"counterparty":""`, `,"counterparty":"  "`} {
		want(t, party, ask(t, request(holding(m), envelope(m, fmt.Sprintf(commit, party), ""), noon)), "denied [scope_violation] [$.purpose.allowed_counterparties]")
	}
	m = compiled(t, courier, with("purpose.excluded_counterparties", `["van-9"]`)...)
	want(t, "excluded", ask(t, request(holding(m), envelope(m, fmt.Sprintf(commit, ""), ""), noon)), "requires_escalation")
}

func TestBypassSpellingOfACounterparty(t *testing.T) {
	m := compiled(t, courier, "purpose.excluded_counterparties", `["van-9"]`)
	for _, name := range []string{"VAN-9", " van-9", "van-9\t"} {
		want(t, name, ask(t, request(holding(m), envelope(m, to(name), ""), noon)), "denied [scope_violation]")
	}
	m = compiled(t, courier, "purpose.excluded_counterparties", `["Evil Corp"]`)
	for _, name := range []string{"evil corp", "Evil  Corp", "Evil\u00a0Corp", "Evil\u200b Corp", "ᴱvil Corp", "Ｅｖｉｌ Corp", "Evil Co\u00adrp"} {
		want(t, name, ask(t, request(holding(m), envelope(m, to(name), ""), noon)), "denied [scope_violation]")
	}
	m = compiled(t, courier, "purpose.allowed_counterparties", `["van-7"]`)
	for _, name := range []string{"VAN-7", "van-7 ", "van-7\u200b", "vаn-7"} {
		want(t, name, ask(t, request(holding(m), envelope(m, to(name), ""), noon)), "denied [scope_violation]")
	}
	m = compiled(t, courier, "purpose.allowed_counterparties", `["night vans"]`)
	want(t, "named after a class", ask(t, request(holding(m), envelope(m, to("Night Van 7"), ""), noon)), "requires_escalation")
	want(t, "and spelled in disguise", ask(t, request(holding(m), envelope(m, to("night  van 7"), ""), noon)), "denied [scope_violation]")
}

func TestBypassPrivateNoteUnderAnotherName(t *testing.T) {
	m := compiled(t, courier, "preferences.private_notes", `["The warehouse is empty by Friday.","Hurry"]`,
		"disclosure.allowed", `[{"field":"purpose.summary","condition":"c"}]`)
	say := func(content string) string {
		return fmt.Sprintf(`{"type":"book_courier","summary":"s","disclosures":[{"field":"purpose.summary","content":%q}]}`, content)
	}
	a := ask(t, request(holding(m), envelope(m, say("Please note: the WAREHOUSE is\nempty by friday."), ""), noon))
	want(t, "quoted", a, "denied [disclosure_denied] [$.proposed_action.disclosures[0].content]")
	want(t, "a word by chance", ask(t, request(holding(m), envelope(m, say("No hurry."), ""), noon)), "allowed")
}

func TestBypassFactorUnderAnotherName(t *testing.T) {
	m := compiled(t, courier, "compliance.prohibited_decision_factors", `["familial_status"]`)
	for _, factor := range []string{"familial_status", "Familial_Status", " familial_status ", "applicant.familial_status", "familial_status\u200b", "ｆamilial_status", "famil\u00adial_status"} {
		a := ask(t, request(holding(m), envelope(m, fmt.Sprintf(`{"type":"book_courier","summary":"s","decision_factors":["price",%q]}`, factor), ""), noon))
		want(t, factor, a, "denied [prohibited_decision_factor]")
	}
}

func TestBypassEscalationSuppressedByADenial(t *testing.T) {
	m := compiled(t, courier, "escalation.required_conditions", `["x"]`)
	a := ask(t, request(holding(m), envelope(m, dear, `{"conditions":["x"]}`), noon))
	want(t, "both", a, "denied [hard_constraint_violation price_above_budget]")
	if !strings.Contains(a.recorded(), "escalation_required@$.escalation.required_conditions") {
		t.Error("the record has lost the escalation")
	}
}

func TestBypassUnknownProfileLoosens(t *testing.T) {
	m := compiled(t, courier, with("authority.requires_trusted_ui_for_commitment", "")...)
	for _, p := range []call.Profile{"", "Reference-SDK", "reference", "none"} {
		r := request(holding(m), envelope(m, deal, `{"trusted_ui_approved":true}`), noon)
		r.Profile = p
		want(t, string(p), ask(t, r), "requires_escalation")
	}
}

func TestBypassNothingIsOnRecord(t *testing.T) {
	m := compiled(t, courier)
	r := request(holding(m), envelope(m, book, ""), noon)
	r.Records = mandate.Records{}
	want(t, "no records at all", ask(t, r), "denied [mandate_not_found]")
}

func TestBypassDenialTellsTheRule(t *testing.T) {
	m := compiled(t, courier, "preferences.private_notes", `["`+secret+`"]`, "negotiation.reservation_price_minor", "777123", "purpose.allowed_counterparties", `["van-7"]`)
	a := ask(t, request(holding(m), envelope(m, `{"type":"book_courier","summary":"`+secret+`","counterparty":"van-8","amount":{"currency":"EUR","total_minor":777124},`+
		`"disclosures":[{"field":"preferences.private_notes","content":"`+secret+`"}]}`, ""), noon))
	for _, hidden := range []string{secret, "777123", "20000", "van-7"} {
		if strings.Contains(string(a.raw), hidden) {
			t.Errorf("%s in %s", hidden, a.raw)
		}
	}
}

package aump

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/admission/call"
)

// decision is one line of the decision table.
type decision struct {
	name    string
	edits   []string // of the mandate
	action  string
	context string
	profile call.Profile
	given   func(*store)
	now     time.Time // noon if zero
	want    string
}

const (
	sharedBudget = "$.authority.budget.max_total_minor"
	book         = `{"type":"book_courier","summary":"Book."}`
	dear         = `{"type":"book_courier","summary":"Book.","amount":{"currency":"EUR","total_minor":20001}}`
	fair         = `{"type":"book_courier","summary":"Book.","amount":{"currency":"EUR","total_minor":20000}}`
	deal         = `{"type":"accept_deal","summary":"Take it."}`
	ref          = call.ProfileReferenceSDK
)

// permit lets the courier's mandate accept deals.
var permit = []string{"authority.permissions", `["accept_deal","book_courier"]`, "authority.requires_trusted_ui_for_commitment", "false"}

func with(edits ...string) []string { return append(append([]string{}, permit...), edits...) }

var decisions = []decision{
	{name: "permitted", action: book, want: "allowed [] []"},
	{name: "budget used to the last cent", action: fair, want: "allowed [] []"},
	{name: "above the budget", action: dear, want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
	{name: "above the budget and in another currency", action: `{"type":"book_courier","summary":"s","amount":{"currency":"USD","total_minor":20001}}`,
		want: "denied [hard_constraint_violation currency_mismatch price_above_budget] [$.authority.budget.currency " + sharedBudget + "]"},
	{name: "no budget", edits: []string{"authority.budget", "", "authority.prohibited_actions", `["x"]`}, action: fair,
		want: "denied [scope_violation] [$.authority.budget]"},
	{name: "no budget and no amount", edits: []string{"authority.budget", "", "authority.prohibited_actions", `["x"]`}, action: book, want: "allowed [] []"},
	{name: "not permitted", action: `{"type":"buy_truck","summary":"s"}`, want: "denied [scope_violation] [$.authority.permissions]"},
	{name: "prohibited and not permitted", edits: []string{"authority.prohibited_actions", `["buy_truck"]`}, action: `{"type":"buy_truck","summary":"s"}`,
		want: "denied [scope_violation] [$.authority.permissions $.authority.prohibited_actions]"},
	{name: "prohibited although permitted", edits: []string{"authority.prohibited_actions", `["book_courier"]`}, action: book,
		want: "denied [scope_violation] [$.authority.prohibited_actions]"},
	{name: "delegated without a bound", edits: []string{"authority.budget", ""}, action: book, want: "denied [scope_violation] [$.authority]"},
	{name: "delegated, bound by a list of counterparties", edits: []string{"authority.budget", "", "purpose.excluded_counterparties", `["x"]`}, action: book, want: "allowed [] []"},
	{name: "suspended", edits: []string{"status", `"suspended"`}, action: book, want: "denied [mandate_inactive] [$.status]"},
	{name: "revoked by its status", edits: []string{"status", `"revoked"`}, action: book, want: "denied [mandate_inactive] [$.status]"},
	{name: "revoked by the list", given: func(s *store) { s.revoked = map[string]bool{"aump_mnd_courier_01": true} }, action: book, want: "denied [mandate_revoked] [$.status]"},
	{name: "revoked by both", edits: []string{"status", `"revoked"`}, given: func(s *store) { s.revoked = map[string]bool{"aump_mnd_courier_01": true} }, action: book,
		want: "denied [mandate_inactive mandate_revoked] [$.status]"},
	{name: "one second before expiry", now: time.Date(2026, 11, 21, 7, 59, 59, 0, time.UTC), action: book, want: "allowed [] []"},
	{name: "at expiry", now: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), action: book, want: "denied [mandate_expired] [$.expires_at]"},
	{name: "expired and too dear", now: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC), action: dear,
		want: "denied [mandate_expired hard_constraint_violation price_above_budget] [$.expires_at " + sharedBudget + "]"},
	{name: "at issue", now: time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), action: book, want: "allowed [] []"},
	{name: "before issue", now: time.Date(2026, 11, 20, 7, 59, 59, 999999999, time.UTC), action: book, want: "denied [mandate_inactive] [$.issued_at]"},
	{name: "before issue, reference", profile: ref, now: time.Date(2026, 11, 20, 7, 59, 59, 0, time.UTC), action: book, want: "allowed [] []"},

	{name: "condition met", edits: []string{"escalation.required_conditions", `["peak_hour"]`}, context: `{"conditions":["rain","peak_hour"]}`, action: book,
		want: "requires_escalation [escalation_required] [$.escalation.required_conditions]"},
	{name: "sure enough", edits: []string{"escalation.confidence_threshold", "0.65"}, context: `{"confidence":0.65}`, action: book, want: "allowed [] []"},
	{name: "not sure enough", edits: []string{"escalation.confidence_threshold", "0.65"}, context: `{"confidence":0.64999}`, action: book,
		want: "requires_escalation [escalation_required confidence_below_threshold] [$.escalation.confidence_threshold]"},
	{name: "how sure is not said", edits: []string{"escalation.confidence_threshold", "0.65"}, context: `{}`, action: book, want: "allowed [] []"},
	{name: "condition and doubt", edits: []string{"escalation.confidence_threshold", "0.65", "escalation.required_conditions", `["peak_hour"]`},
		context: `{"confidence":0.1,"conditions":["peak_hour"]}`, action: book,
		want: "requires_escalation [escalation_required confidence_below_threshold] [$.escalation.required_conditions $.escalation.confidence_threshold]"},
	{name: "a denial outranks an escalation", edits: []string{"escalation.required_conditions", `["peak_hour"]`}, context: `{"conditions":["peak_hour"]}`, action: dear,
		want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
	{name: "supervised, commits", edits: with("authority.mode", `"supervised"`), action: deal, want: "requires_escalation [escalation_required] [$.authority.mode]"},
	{name: "supervised, commits by its word", edits: with("authority.mode", `"supervised"`), action: `{"type":"book_courier","summary":"s","commitment":true}`,
		want: "requires_escalation [escalation_required] [$.authority.mode]"},
	{name: "supervised, commits to nothing", edits: with("authority.mode", `"supervised"`), action: book, want: "allowed [] []"},
	{name: "advisory, commits", edits: with("authority.mode", `"advisory"`), action: deal, want: "denied [scope_violation] [$.authority.mode]"},
	{name: "advisory, commits, reference", edits: with("authority.mode", `"advisory"`), profile: ref, action: deal, want: "allowed [] []"},
	{name: "trusted UI is not mentioned", edits: with("authority.requires_trusted_ui_for_commitment", ""), action: deal,
		want: "requires_escalation [escalation_required] [$.authority.requires_trusted_ui_for_commitment]"},
	{name: "trusted UI is not mentioned, reference", edits: with("authority.requires_trusted_ui_for_commitment", ""), profile: ref, action: deal, want: "allowed [] []"},
	{name: "trusted UI, claimed", edits: with("authority.requires_trusted_ui_for_commitment", "true"), context: `{"trusted_ui_approved":true}`, action: deal,
		want: "requires_escalation [escalation_required] [$.authority.requires_trusted_ui_for_commitment]"},
	{name: "trusted UI, claimed, reference", edits: with("authority.requires_trusted_ui_for_commitment", "true"), context: `{"trusted_ui_approved":true}`, profile: ref,
		action: deal, want: "allowed [] []"},
	{name: "trusted UI, on record", edits: with("authority.requires_trusted_ui_for_commitment", "true"), given: func(s *store) { s.facts.TrustedUI = true }, action: deal,
		want: "allowed [] []"},
	{name: "deal without approval", edits: with("authority.prohibited_actions", `["accept_deal_without_approval"]`), action: deal,
		want: "requires_escalation [escalation_required] [$.authority.prohibited_actions]"},
	{name: "deal with an approval of its own", edits: with("authority.prohibited_actions", `["accept_deal_without_approval"]`), context: `{"approval":{"by":"me"}}`, action: deal,
		want: "requires_escalation [escalation_required] [$.authority.prohibited_actions]"},
	{name: "deal with an approval of its own, reference", edits: with("authority.prohibited_actions", `["accept_deal_without_approval"]`), context: `{"approval":{"by":"me"}}`,
		profile: ref, action: deal, want: "allowed [] []"},
	{name: "deal approved on record", edits: with("authority.prohibited_actions", `["accept_deal_without_approval"]`), given: func(s *store) { s.facts.Approved = true }, action: deal,
		want: "allowed [] []"},

	{name: "prohibited factor", edits: []string{"compliance.prohibited_decision_factors", `["age"]`}, action: `{"type":"book_courier","summary":"s","decision_factors":["price","age"]}`,
		want: "denied [prohibited_decision_factor] [$.compliance.prohibited_decision_factors]"},
	{name: "other factors", edits: []string{"compliance.prohibited_decision_factors", `["age"]`}, action: `{"type":"book_courier","summary":"s","decision_factors":["mileage"]}`, want: "allowed [] []"},
	{name: "review required", edits: []string{"compliance.review_required_actions", `["book_courier"]`}, action: book,
		want: "requires_escalation [compliance_review_required] [$.compliance.review_required_actions]"},
	{name: "review required of what is denied", edits: []string{"compliance.review_required_actions", `["book_courier"]`}, action: dear,
		want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},

	{name: "spent before", given: spent(0, 1), action: fair, want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
	{name: "reserved before", given: spent(1, 0), action: fair, want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
	{name: "just enough left", given: spent(5000, 5000), action: `{"type":"book_courier","summary":"s","amount":{"currency":"EUR","total_minor":10000}}`, want: "allowed [] []"},
	{name: "spent before, no amount now", given: spent(20000, 20000), action: book, want: "allowed [] []"},
	{name: "more spent than can be counted", given: spent(math.MaxInt64, math.MaxInt64), action: `{"type":"book_courier","summary":"s","amount":{"currency":"EUR","total_minor":0}}`,
		want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},
	{name: "a ledger that gives money", given: spent(-1, -1), action: dear, want: "denied [hard_constraint_violation price_above_budget] [" + sharedBudget + "]"},

	{name: "excluded counterparty", edits: []string{"purpose.excluded_counterparties", `["van-9"]`}, action: to("van-9"), want: "denied [scope_violation] [$.purpose.excluded_counterparties]"},
	{name: "excluded counterparty, reference", edits: []string{"purpose.excluded_counterparties", `["van-9"]`}, profile: ref, action: to("van-9"), want: "allowed [] []"},
	{name: "not excluded", edits: []string{"purpose.excluded_counterparties", `["van-9"]`}, action: to("van-8"), want: "allowed [] []"},
	{name: "named after an excluded class", edits: []string{"purpose.excluded_counterparties", `["agencies"]`}, action: to("agency-3"),
		want: "requires_escalation [escalation_required] [$.purpose.excluded_counterparties]"},
	{name: "allowed counterparty", edits: []string{"purpose.allowed_counterparties", `["van-7"]`}, action: to("van-7"), want: "allowed [] []"},
	{name: "counterparty not allowed", edits: []string{"purpose.allowed_counterparties", `["van-7"]`}, action: to("van-8"), want: "denied [scope_violation] [$.purpose.allowed_counterparties]"},
	{name: "named after an excluded class in the plural", edits: []string{"purpose.excluded_counterparties", `["agencies"]`}, action: to("agencies/acme"),
		want: "requires_escalation [escalation_required] [$.purpose.excluded_counterparties]"},
	{name: "named after an excluded class in the singular", edits: []string{"purpose.excluded_counterparties", `["competitor"]`}, action: to("competitor_7"),
		want: "requires_escalation [escalation_required] [$.purpose.excluded_counterparties]"},
	{name: "begins like an excluded class", edits: []string{"purpose.excluded_counterparties", `["competitor"]`}, action: to("competitorish"), want: "allowed [] []"},
	{name: "named after an allowed entry", edits: []string{"purpose.allowed_counterparties", `["agencies"]`}, action: to("agencies/acme"),
		want: "denied [scope_violation] [$.purpose.allowed_counterparties]"},
	{name: "named after an allowed class", edits: []string{"purpose.allowed_counterparties", `["local_buyers"]`}, action: to("local_buyer_001"),
		want: "requires_escalation [escalation_required] [$.purpose.allowed_counterparties]"},
	{name: "named after nothing", edits: []string{"purpose.allowed_counterparties", `["local_buyers"]`}, action: to("local_buyerish"),
		want: "denied [scope_violation] [$.purpose.allowed_counterparties]"},
	{name: "a category that is allowed", edits: []string{"purpose.allowed_categories", `["van"]`}, action: `{"type":"book_courier","summary":"s","attributes":{"category":"van"}}`, want: "allowed [] []"},
	{name: "a category that is not", edits: []string{"purpose.allowed_categories", `["van"]`}, action: `{"type":"book_courier","summary":"s","attributes":{"category":"jet"}}`,
		want: "denied [scope_violation] [$.purpose.allowed_categories]"},
	{name: "no category", edits: []string{"purpose.allowed_categories", `["van"]`}, action: book, want: "allowed [] []"},
}

func spent(reserved, settled int64) func(*store) {
	return func(s *store) { s.spend = map[string]mandate.Spend{"EUR": {Reserved: reserved, Settled: settled}} }
}

func to(counterparty string) string {
	return fmt.Sprintf(`{"type":"book_courier","summary":"s","counterparty":%q}`, counterparty)
}

func TestDecisions(t *testing.T) {
	for _, tc := range decisions {
		t.Run(tc.name, func(t *testing.T) {
			m := compiled(t, courier, tc.edits...)
			if m.Violations != nil {
				t.Fatal(m.Violations)
			}
			s := holding(m)
			if tc.given != nil {
				tc.given(&s)
			}
			if tc.now.IsZero() {
				tc.now = noon
			}
			r := request(s, envelope(m, tc.action, tc.context), tc.now)
			r.Profile = tc.profile
			if a := ask(t, r); a.String() != tc.want {
				t.Errorf("%s\nwant %s\nrecord %s", a, tc.want, a.recorded())
			}
		})
	}
}

package admission

import (
	"testing"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
)

// account is a ledger with one answer.
type account mandate.Spend

func (a account) Spend(mandate.Proposal) mandate.Spend { return mandate.Spend(a) }

// TestOnlyAnAllowSpends: what is asked about, denied, or has no amount takes no
// money.
func TestOnlyAnAllowSpends(t *testing.T) {
	supervised := []string{`"mode": "delegated"`, `"mode": "supervised"`}
	for _, tc := range []struct {
		name    string
		mandate []string
		request []string
		ledger  account
		want    int64
		codes   string
	}{
		{"allowed", nil, nil, account{}, 1500, "allow"},
		{"up to the last cent", nil, nil, account{Reserved: 10000, Settled: 8500}, 1500, "allow"},
		{"one cent more", nil, nil, account{Reserved: 10000, Settled: 8501}, 0, "deny"},
		{"a full ledger", nil, nil, account{Full: true}, 0, "deny"},
		{"a ledger that nobody can read", nil, nil, account{Unknown: true}, 0, "deny"},
		{"escalated", supervised, []string{`"type":"book_courier"`, `"type":"book_courier","commitment":true`}, account{}, 0, "ask"},
		{"another currency", nil, []string{"EUR", "USD"}, account{}, 0, "deny"},
		{"nothing", nil, []string{"1500", "0"}, account{}, 0, "allow"},
		{"no amount", nil, []string{`,"amount":{"currency":"EUR","total_minor":1500}`, ""}, account{Full: true, Unknown: true}, 0, "allow"},
	} {
		m := courierMandate(t, tc.mandate...)
		r, in := bookingUnder(m, tc.request...)
		in.Mandates.SpendLedger = tc.ledger
		out := Decide(r, EvaluatorsOnly(), in)
		var got int64
		if s := out.Consumption.Spend; s != nil {
			got = s.Amount
			if s.Budget != 20000 || s.Currency != "EUR" || s.MandateID != m.ID || s.ToolCallID != "c1" || s.Source != r.Source || len(s.Action) == 0 {
				t.Errorf("%s: %+v", tc.name, s)
			}
		}
		if got != tc.want || out.Decision.Verdict != events.Verdict(tc.codes) {
			t.Errorf("%s: takes %d, want %d (%s)", tc.name, got, tc.want, codes(out))
		}
	}
	m := courierMandate(t)
	r, in := bookingUnder(m)
	if out := Decide(r, rules(t, "deny no: true"), in); out.Consumption.Spend != nil || out.Decision.Verdict != events.Deny {
		t.Error("what a policy denies takes money:", codes(out))
	}
}

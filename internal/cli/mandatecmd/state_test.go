package mandatecmd

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
)

func TestMandateState(t *testing.T) {
	raw, err := os.ReadFile("../../../schemas/testdata/corpus/aump/mandate/valid/minimal.json")
	if err != nil {
		t.Fatal(err)
	}
	begins, ends := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name    string
		replace []string
		revoked bool
		now     time.Time
		want    string
		signed  mandate.SignaturePolicy
	}{
		{"as it begins", nil, false, begins, "in force", ""},
		{"before", nil, false, begins.Add(-time.Second), "not yet valid", ""},
		{"at the last moment", nil, false, ends.Add(-time.Nanosecond), "in force", ""},
		{"at its end", nil, false, ends, "expired", ""},
		{"revoked", nil, true, begins, "revoked", ""},
		{"revoked, and expired since", nil, true, ends, "revoked", ""},
		{"suspended", []string{`"status": "active"`, `"status": "suspended"`}, false, begins, "suspended", ""},
		{"a draft that has expired", []string{`"status": "active"`, `"status": "draft"`}, false, ends, "expired", ""},
		{"without bounds", []string{"\"budget\": {\n      \"currency\": \"EUR\",\n      \"max_total_minor\": 20000\n    },", ""}, false, begins, "without bounds", ""},
		{"not signed", nil, false, begins, "not signed as required", mandate.SignaturesRequired},
		{"not signed, and need not be", nil, false, begins, "in force", mandate.SignaturesIfPresent},
		{"unreadable", []string{`"authority"`, `"authorities"`}, false, begins, "unreadable", ""},
		{"no JSON", []string{"{", ""}, false, begins, "unreadable", ""},
	} {
		text := strings.NewReplacer(tc.replace...).Replace(string(raw))
		if got := mandateState(text, nil, tc.signed, tc.revoked, tc.now); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestUnreadableAccounts: an account that the admitter cannot read, and denies amounts for, is shown as such and not as
// nothing spent.
func TestUnreadableAccounts(t *testing.T) {
	accounts := decodeAccounts(map[string][]byte{
		"m.EUR": []byte(`{"v":1,"settled":700,"entries":[]}`), "m.GBP": []byte(`{"v":2,"settled":700,"entries":[]}`), "m.USD": []byte(`{"v":1,`),
	})
	var got []string
	for _, a := range accounts["m"] {
		got = append(got, a.spent(time.Now()).String())
	}
	const unreadable = " unreadable, so that amounts are denied"
	if want := []string{"EUR 700 spent, 0 reserved", "GBP" + unreadable, "USD" + unreadable}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

package protocol

import "testing"

// The row of a protocol with mandates is enough to find the text that a decision names.
func TestMandateOf(t *testing.T) {
	const mandate = `{"id":"aump_mnd_01","version":"0.1.0","type":"mandate","purpose":"pay invoices","status":"active"}`
	hash := aumpMandateHash(mandate)
	Rows["toy"] = Row{MandateHash: func(text string) string { return "toy of " + text }}
	t.Cleanup(func() { delete(Rows, "toy") })
	for _, tc := range []struct {
		text, hash, want string
	}{
		{mandate, hash, "aump"}, {"leave", "toy of leave", "toy"}, {mandate, "toy of leave", ""}, {"leave", hash, ""},
	} {
		if token, found := MandateOf(tc.text, tc.hash); token != tc.want || found != (tc.want != "") {
			t.Errorf("%q with hash %q: %q %v, want %q", tc.text, tc.hash, token, found, tc.want)
		}
	}
}

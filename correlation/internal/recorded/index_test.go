package recorded

import "testing"

func TestIndex(t *testing.T) {
	x := Index[string]{}
	x.Add("e1", "s1", "c1", "first")
	x.Add("e2", "s1", "c1", "second")
	x.Add("e3", "", "", "third")
	x.Add("", "s4", "e1", "fourth") // a call whose id is that of an event
	for _, tc := range []struct{ event, session, call, want string }{
		{"e1", "", "", "first"},
		{"e2", "", "", "second"},
		{"", "s1", "", "first"},
		{"", "", "c1", "first"},
		{"e2", "s1", "c1", "second"},
		{"e9", "s4", "c1", "fourth"},
		{"e9", "s9", "c1", "first"},
		{"", "", "e1", "fourth"},
		{"e9", "s9", "c9", ""},
		{"", "", "", ""},
	} {
		if got, known := x.Lookup(tc.event, tc.session, tc.call); got != tc.want || known != (tc.want != "") {
			t.Errorf("%+v: %q, %v", tc, got, known)
		}
	}
}

package admitter

import "testing"

// Mode observe is for tenants by name: nothing that could stand for several, or for none, is taken.
func TestObservedTenantsAreNamed(t *testing.T) {
	for _, bad := range []string{"", "*", ">", "acme,globex", "acme globex", "a.b", "~", "ac?me"} {
		if observed, err := observedTenants([]string{"acme", bad}); err == nil {
			t.Errorf("%q is taken as %v", bad, observed)
		}
	}
	if observed, err := observedTenants([]string{"acme", "acme"}); err != nil || len(observed) != 1 || !observed["acme"] {
		t.Errorf("%v, %v", observed, err)
	}
}

package agenthook

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// A change in parts counts when its last part is there. Two admitters write the parts of one change,
// or of two, mixed: the change that was begun last is in force afterwards, whole.
func TestDeclarationsInParts(t *testing.T) {
	part := func(digest string, n, of int) events.PublisherChange {
		return events.PublisherChange{Digest: digest, Part: n, Parts: of, Documents: []events.PublisherDocument{
			{Tenant: digest + string(rune('0'+n)), Name: "manifest.m", Declares: &events.PublisherDeclares{Source: "s"}}}}
	}
	whole := part("whole", 0, 0)
	for name, c := range map[string]struct {
		changes []events.PublisherChange
		want    []string // tenants
	}{
		"one record":               {[]events.PublisherChange{whole}, []string{"whole0"}},
		"in order":                 {[]events.PublisherChange{whole, part("a", 1, 2), part("a", 2, 2)}, []string{"a1", "a2"}},
		"the last is not there":    {[]events.PublisherChange{whole, part("a", 1, 3), part("a", 2, 3)}, []string{"whole0"}},
		"the first is not there":   {[]events.PublisherChange{whole, part("a", 2, 2)}, []string{"whole0"}},
		"begun again":              {[]events.PublisherChange{whole, part("a", 1, 2), part("a", 1, 2), part("a", 2, 2)}, []string{"a1", "a2"}},
		"two writers of one":       {[]events.PublisherChange{part("a", 1, 3), part("a", 2, 3), part("a", 1, 3), part("a", 3, 3), part("a", 2, 3), part("a", 3, 3)}, []string{"a1", "a2", "a3"}},
		"two changes":              {[]events.PublisherChange{part("a", 1, 2), part("b", 1, 2), part("a", 2, 2), part("b", 2, 2)}, []string{"b1", "b2"}},
		"whole after an unended":   {[]events.PublisherChange{part("a", 1, 2), whole, part("a", 2, 2)}, []string{"whole0"}},
		"a smaller one afterwards": {[]events.PublisherChange{part("a", 1, 2), part("a", 2, 2), whole}, []string{"whole0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var ds Declarations
			for _, change := range c.changes {
				ds.Replace(change, events.LogMessage{})
			}
			for _, tenant := range c.want {
				if len(ds.byTenant[tenant]) != 1 {
					t.Errorf("%s has no declaration", tenant)
				}
			}
			if len(ds.byTenant) != len(c.want) {
				t.Errorf("%d tenants, want %v", len(ds.byTenant), c.want)
			}
		})
	}
}

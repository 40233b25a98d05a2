package cli

import (
	"slices"
	"strings"
	"testing"
)

// Whatever checks against the public checkpoint key finds it in the same variable.
func TestPublicKeyVariable(t *testing.T) {
	model, err := Program().Model()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, c := range model.Leaves(false) {
		for _, f := range c.Flags {
			if !strings.Contains(strings.ToLower(f.Help), "public checkpoint key") {
				continue
			}
			found++
			if !slices.Equal(f.Envs, []string{"COUNTERSIGN_PUBLIC_KEY"}) {
				t.Errorf("%s --%s reads %v", c.Path(), f.Name, f.Envs)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands check against it", found)
	}
}

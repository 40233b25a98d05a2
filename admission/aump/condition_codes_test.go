package aump

import (
	"fmt"
	"testing"
)

// TestConditionCodes: each met condition has a code, in any order and once, unless there are too many for a workflow.
func TestConditionCodes(t *testing.T) {
	for n, want := range map[int]int{0: 0, 2: 2, maxConditionCodes: maxConditionCodes, maxConditionCodes + 1: 1} {
		var met []string
		for i := range n {
			met = append(met, fmt.Sprint(i), fmt.Sprint(i))
		}
		if got := conditionCodes(met); len(got) != want {
			t.Errorf("%d conditions: %d codes, want %d", n, len(got), want)
		}
	}
}

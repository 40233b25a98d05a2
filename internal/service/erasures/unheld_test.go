package erasures

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/evidence/retention"
)

// Those that are held, however many and wherever they stand, do not keep others from
// their turn.
func TestUnheld(t *testing.T) {
	var s retention.State
	held := []string{"a", "b", "c", "e"}
	for _, session := range held {
		s.Holds = append(s.Holds, retention.Hold{Scope: retention.Scope{Session: session}})
	}
	all := []string{"a", "b", "c", "d", "e", "f", "g"}
	for most, want := range map[int][]string{1: {"d"}, 2: {"d", "f"}, 9: {"d", "f", "g"}} {
		if got, err := (Evidence{}).Unheld(t.Context(), s, all, most); err != nil || !slices.Equal(got, want) {
			t.Errorf("at most %d: %q (%v), want %q", most, got, err, want)
		}
	}
	s.Holds = append(s.Holds, retention.Hold{})
	if got, err := (Evidence{}).Unheld(t.Context(), s, all, 9); err != nil || len(got) > 0 {
		t.Errorf("with a hold on the tenant: %q (%v)", got, err)
	}
}

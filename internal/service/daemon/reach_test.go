package daemon

import "testing"

func TestReach(t *testing.T) {
	var r reachability
	for i, step := range []struct{ answered, down, move bool }{
		{true, false, false}, {false, false, false}, {true, false, false}, // one answer that is missing is no outage
		{false, false, false}, {false, true, false}, {false, true, false}, {false, true, true}, // another server is tried
		{false, true, false}, {false, true, false}, {false, true, false}, {false, true, true}, // and again
		{true, false, false}, {false, false, false},
	} {
		if down, move := r.addAnswer(step.answered); down != step.down || move != step.move {
			t.Errorf("step %d: down %t, move %t", i, down, move)
		}
	}
}

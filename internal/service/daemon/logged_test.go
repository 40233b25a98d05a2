package daemon

import (
	"fmt"
	"testing"
	"time"
)

// A problem that stays is logged once a minute.
func TestLoggedProblem(t *testing.T) {
	var l LoggedProblem
	got, now := "", time.Now()
	for i, problem := range []string{"a", "a", "b", "a", "a", "a"} {
		if l.IsDue(problem, now.Add(time.Duration(i)*logAgain/2)) {
			got += fmt.Sprint(i, problem, " ")
		}
	}
	if got != "0a 2b 3a 5a " {
		t.Errorf("logged: %s", got)
	}
}

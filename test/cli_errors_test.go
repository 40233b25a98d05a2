package e2e_test

import (
	"os"
	"testing"
)

// A system that does not answer is said in one line that says what to do; for
// admit it is no verdict.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	request := file(t, allowedCall("s", "c1").bytes())
	s := start(t)
	t.Run("no admitter", func(t *testing.T) {
		admitter := s.holdDown(t, "admitter")
		defer admitter()
		r := s.run(t, "admit", "--protocol", "agenthook", "--timeout", "2s", request).want(t, 1)
		r.oneLine(t, "deny")
		if r.out != "" {
			t.Errorf("it prints %s", r.out)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		stale := file(t, must(os.ReadFile(s.ready)))
		ok(t, s.stop())
		tool(t, "admit", "--ready-file", stale, "--protocol", "agenthook", request).want(t, 1).oneLine(t, "countersign up")
		tool(t, "verify", "--ready-file", stale).want(t, 1).oneLine(t)
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

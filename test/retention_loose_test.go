package e2e_test

import (
	"fmt"
	"testing"
)

// Refused requests that could not be parsed belong to no session. An erasure reaches them by
// their sequence, by the session that their header names and by the person in their bytes;
// nothing of them stays on the disk.
func TestErasedWithoutSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.runtime(t)
	values := map[string]string{}
	ask := func(name, header, body string) answer {
		values[name] = randomText(t) + randomText(t)
		return r.admit(t, "agenthook", []byte(fmt.Sprintf(body, values[name])), "Countersign-Session", header)
	}
	ask("named", "s-named", `{"broken": "%s`)
	seq := ask("by sequence", "s-other", `{"broken": "%s`).seq - 1
	ask("person", "s-third", `{"user": "dora-17", "broken": "%s`)
	ask("kept", "s-kept", `{"user": "dora-170", "broken": "%s`)
	s.settle(t)
	signed(t, s)
	erased := func(name string, args ...string) {
		t.Helper()
		if len(found(t, s.data, values[name])) == 0 {
			t.Fatalf("%q stands nowhere before the erasure", name)
		}
		s.run(t, append([]string{"retention", "erase", "--reason", "request 17", "--quiet", "0s", "--yes"}, args...)...).want(t, 0)
		eventually(t, name+" is gone", func() error {
			if files := found(t, s.data, values[name]); len(files) > 0 {
				return errorf("it still stands in %v", files)
			}
			return nil
		})
	}
	s.run(t, "retention", "erase", "--seq", "x", "--reason", "r").want(t, 2)
	s.run(t, "retention", "erase", "--seq", "1", "--reason", "r").want(t, 1)
	erased("named", "--session", "s-named")
	erased("by sequence", "--seq", fmt.Sprint(seq))
	erased("person", "--subject", "dora-17")
	if len(found(t, s.data, values["kept"])) == 0 {
		t.Error("what nobody erased is gone")
	}
	s.settle(t)
	s.verified(t, 0)
	s.sound(t)
}

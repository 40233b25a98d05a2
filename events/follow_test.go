package events_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Whatever is asked for, it is within the bounds and the tenant.
func FuzzFollowRequest(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"after":0}`, `{"since":"2026-11-20T09:00:00Z","kinds":["decisions"],"states":{"decisions":"deny"},"session":"a.>"}`,
		`{"max":500,"wait_ms":30000,"log":"GOV@20261120T064150.123456789Z"}`, `{"kinds":["findings","findings"]}`, `{"session":"*"}`} {
		f.Add([]byte(seed))
	}
	space := subject.Space{}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := events.DecodeFollowRequest(b)
		if err != nil {
			return
		}
		if r.Max < 1 || r.Max > events.FollowMax || r.WaitMS < 0 || len(r.Kinds) == 0 || r.After != nil && !r.Since.IsZero() {
			t.Errorf("%q: %+v", b, r)
		}
		for _, s := range r.Subjects(space, "acme") {
			tokens := strings.Split(s, ".")
			if len(tokens) != 5 || tokens[2] != "acme" || strings.Contains(s, ">") {
				t.Errorf("%q: %s", b, s)
			}
		}
	})
}

package admitter

import (
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A set is one value: it comes into force as a whole and supersedes documents that were put one
// by one. Its text and its author are in the log before the first decision under it.
func TestPushedSet(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "broken.yaml", []byte("kind: Nonsense\n"))
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	body := file(t, "requests/pre-tool-use.json")
	answer := func() string { return readNative(t, ask(t, nc, "gov.admit.acme.agenthook", body).Data).Reason }
	if got := answer(); got != "policy_error" {
		t.Fatalf("by the broken document: %s", got)
	}
	set := events.PolicySet{Author: "alice", Message: "first", PushedAt: events.At(time.Unix(1, 0)),
		Documents: []events.PolicyDocument{{Name: "mail.yaml", Text: string(file(t, "policies/assistant/mail.yaml"))}, {Name: "files.yaml", Text: string(file(t, "policies/assistant/files.yaml"))}}}
	value, err := set.Encode()
	servicetest.OK(t, err)
	revision := put(t, n, events.PolicySetKey, value)
	servicetest.Eventually(t, "the set decides", func() bool { return answer() == "Mail to colleagues is fine." })
	if s.Health.Report().Status != daemon.StatusOK {
		t.Errorf("health %+v", s.Health.Report())
	}
	c := lastChange(t, n)
	if c.Revision != revision || c.Author != "alice" || c.Message != "first" || len(c.Documents) != 2 || c.Omitted || len(c.Policies) != 2 ||
		!slices.Contains(c.Documents, set.Documents[0]) {
		t.Errorf("the log says %+v", c)
	}
	// A document that is put after the set counts, and has no author.
	put(t, n, "mail.yaml", []byte("kind: Nonsense\n"))
	servicetest.Eventually(t, "the document that was put over it breaks it", func() bool { return answer() == "policy_error" })
	if c := lastChange(t, n); c.Author != "" || c.Error == "" || len(c.Documents) != 2 {
		t.Errorf("the log says %+v", c)
	}
	put(t, n, events.PolicySetKey, value)
	servicetest.Eventually(t, "the set decides again", func() bool { return answer() == "Mail to colleagues is fine." })
	put(t, n, events.PolicySetKey, []byte(`{"v":99,"documents":[]}`))
	servicetest.Eventually(t, "a set that cannot be read denies", func() bool { return answer() == "policy_error" })
	servicetest.OK(t, bucket(t, n, "operator", streams.BucketPolicies).Delete(t.Context(), events.PolicySetKey))
	servicetest.Eventually(t, "what was put before the set does not come back", func() bool { return answer() == "no_policy" })
}

func lastChange(t *testing.T, n *servicetest.NATS) events.PolicyChange {
	t.Helper()
	list := of(n.Log(), policySubject)
	c, err := events.DecodeRecord[events.PolicyChange](list[len(list)-1].Body)
	servicetest.OK(t, err)
	return c
}

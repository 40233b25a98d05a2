package auditor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// putRetention writes a tenant's retention policy as an operator does.
func putRetention(t *testing.T, n *servicetest.NATS, tenant, text string) {
	t.Helper()
	kv, err := n.JS("operator").KeyValue(t.Context(), streams.BucketRetention)
	servicetest.OK(t, err)
	_, err = kv.PutString(t.Context(), retention.PolicyKey(tenant), text)
	servicetest.OK(t, err)
}

const classPolicy = "version: 1\nname: keep\nretention: hashes\nsessions:\n  - {match: \"none-*\", retention: none}\n  - {match: \"full-*\", retention: full_transcript}\n"

// body is the first record's of a session.
func body(t *testing.T, dsn, session string) string {
	t.Helper()
	return string(records(t, dsn, session)[0].Body)
}

func TestAClassCountsFromTheNextBatch(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	start(t, flags(n, dsn, 100)).AwaitReady()
	n.Publish(servicetest.Runtime, mail("before"))
	servicetest.Eventually(t, "the first is audited", func() bool { return signedUp(n) == len(n.Log()) })
	putRetention(t, n, servicetest.Tenant, classPolicy)
	for _, s := range []string{"s1", "none-1", "full-1"} {
		n.Publish(servicetest.Runtime, mail(s))
	}
	servicetest.Eventually(t, "all is audited", func() bool { return signedUp(n) == len(n.Log()) })
	holds(t, n, dsn)
	for s, want := range map[string]string{
		"before": `{"tool_input":{"to":"[redacted:email]"}}`, "s1": `{"tool_input":"[redacted:retention_hashes]"}`,
		"none-1": `"[redacted:retention_none]"`, "full-1": `{"tool_input":{"to":"[redacted:email]"}}`,
	} {
		if got := body(t, dsn, s); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
	if r := records(t, dsn, "s1")[0].Redactions[0]; !strings.HasPrefix(r.Policy, "keep@") {
		t.Errorf("%+v", r)
	}
}

// A policy that cannot be read withholds what the last one withheld at most, after
// a restart too, and is a health problem.
func TestAnUnreadableClassFailsClosed(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	putRetention(t, n, servicetest.Tenant, strings.Replace(classPolicy, "retention: none", "retention: summary_only", 1))
	putRetention(t, n, servicetest.Tenant, "version: 7\n")
	s := start(t, flags(n, dsn, 100)).AwaitReady()
	n.Publish(servicetest.Runtime, mail("full-1"))
	servicetest.Eventually(t, "it is audited", func() bool { return signedUp(n) == len(n.Log()) })
	if got := body(t, dsn, "full-1"); got != `{"tool_input":"[redacted:retention_hashes]"}` {
		t.Errorf("%s", got)
	}
	if health := fmt.Sprintf("%+v", s.Health.Report()); !strings.Contains(health, "class hashes") {
		t.Errorf("health %s", health)
	}
	putRetention(t, n, servicetest.Tenant, classPolicy)
	n.Publish(servicetest.Runtime, mail("full-2"))
	servicetest.Eventually(t, "it is mended", func() bool { return signedUp(n) == len(n.Log()) })
	if got := body(t, dsn, "full-2"); strings.Contains(got, "retention_") {
		t.Errorf("%s", got)
	}
	if health := fmt.Sprintf("%+v", s.Health.Report()); strings.Contains(health, "class hashes") {
		t.Errorf("health %s", health)
	}
	holds(t, n, dsn)
}

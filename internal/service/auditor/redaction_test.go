package auditor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const mailPolicy = "version: 1\nname: mail\nrules:\n  - {name: join, detectors: [email], action: tokenise}\n"

// putPolicy writes a tenant's redaction policy as an operator does.
func putPolicy(t *testing.T, n *servicetest.NATS, tenant, text string) {
	t.Helper()
	kv, err := n.JS("operator").KeyValue(t.Context(), streams.BucketRedaction)
	servicetest.OK(t, err)
	_, err = kv.PutString(t.Context(), events.RuleKey(tenant), text)
	servicetest.OK(t, err)
}

func mail(session string) streams.Msg {
	return streams.Msg{Subject: "gov.events.acme.rt1.agenthook." + session + ".PreToolUse", Body: []byte(`{"tool_input":{"to":"dana@other.example"}}`)}
}

// records of a session, as stored.
func records(t *testing.T, dsn, session string) (out []evidence.Record) {
	t.Helper()
	parts, err := ledgerOf(t, dsn).Session(t.Context(), servicetest.Tenant, session)
	servicetest.OK(t, err)
	for _, p := range parts {
		for _, r := range p.Rows {
			rec, err := evidence.ParseRecord([]byte(r.Record))
			servicetest.OK(t, err)
			out = append(out, rec)
		}
	}
	return out
}

// ofKind returns the bodies of the log's messages with a subject prefix.
func ofKind(n *servicetest.NATS, prefix string) (out []string) {
	for _, m := range n.Log() {
		if strings.HasPrefix(m.Subject, prefix) {
			out = append(out, string(m.Body))
		}
	}
	return out
}

func TestAPolicyCountsFromTheNextBatchAndIsOnTheLog(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	start(t, flags(n, dsn, 100)).AwaitReady()
	n.Publish(servicetest.Runtime, mail("s1"))
	servicetest.Eventually(t, "the first is audited", func() bool { return signedUp(n) == len(n.Log()) })
	putPolicy(t, n, servicetest.Tenant, mailPolicy)
	putPolicy(t, n, "other", "version: 1\nname: other\nrules: []\n")
	n.Publish(servicetest.Runtime, mail("s2"))
	servicetest.Eventually(t, "the second is audited", func() bool { return len(ofKind(n, "gov.control.GOV.redaction")) > 0 && signedUp(n) == len(n.Log()) })
	holds(t, n, dsn)
	if before := records(t, dsn, "s1")[0]; before.RedactionPolicy != "" || before.Redactions[0].Policy != "builtin" || before.Redactions[0].Action != "mask" {
		t.Errorf("before the policy: %+v", before)
	}
	after := records(t, dsn, "s2")[0]
	if !strings.HasPrefix(after.RedactionPolicy, "mail@") || after.Redactions[0].Policy != after.RedactionPolicy+"/join" || !strings.Contains(string(after.Body), "[redacted:email:t-") {
		t.Errorf("under the policy: %+v", after)
	}
	changes := ofKind(n, "gov.control.GOV.redaction")
	if len(changes) != 1 || !strings.Contains(changes[0], `"policy":"`+after.RedactionPolicy+`","tenant":"acme"`) {
		t.Errorf("on the log: %v", changes)
	}
}

func TestAChangeIsNotedOnceHoweverOftenAnAuditorStarts(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	putPolicy(t, n, servicetest.Tenant, mailPolicy)
	for range 3 {
		n.Publish(servicetest.Runtime, mail("s1"))
		audited(t, n, flags(n, dsn, 10))
	}
	if changes := ofKind(n, "gov.control.GOV.redaction"); len(changes) != 1 {
		t.Errorf("noted %d times: %v", len(changes), changes)
	}
}

// An auditor stores tree hashes before records. One that dies in between leaves those of records that
// the next one makes by another policy.
func TestARestartWithAnotherPolicy(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	n.Publish(servicetest.Runtime, slices.Repeat([]streams.Msg{mail("s1")}, 260)...)
	a := standing(t, flags(n, dsn, 1000))
	servicetest.OK(t, a.writer.InsertTreeNodes(t.Context(), a.shard, prepare(t, a, n.Log()).nodes))
	putPolicy(t, n, servicetest.Tenant, mailPolicy)
	for range 2 {
		audited(t, n, flags(n, dsn, 1000))
	}
	holds(t, n, dsn)
}

func TestABrokenPolicyWithholdsAndIsAFinding(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	putPolicy(t, n, servicetest.Tenant, "version: 1\nname: mail\nrules:\n  - {name: x, detectors: [github_token], action: allow}\n")
	s := start(t, flags(n, dsn, 100)).AwaitReady()
	n.Publish(servicetest.Runtime, mail("s1"))
	servicetest.Eventually(t, "all is audited, findings too", func() bool { return len(ofKind(n, "gov.findings.")) > 0 && signedUp(n) == len(n.Log()) })
	holds(t, n, dsn)
	rec := records(t, dsn, "s1")[0]
	if rec.Reason != build.ReasonRedactionFailed || string(rec.Body) != "null" {
		t.Errorf("%+v", rec)
	}
	findings := ofKind(n, "gov.findings.acme.high.s1")
	if len(findings) != 1 || !strings.Contains(findings[0], `"rule":"redaction_failed"`) {
		t.Errorf("findings %v", findings)
	}
	if health := s.Health.Report(); !strings.Contains(fmt.Sprintf("%+v", health), "may never be released") {
		t.Errorf("health %+v", health)
	}
	putPolicy(t, n, servicetest.Tenant, mailPolicy)
	n.Publish(servicetest.Runtime, mail("s2"))
	servicetest.Eventually(t, "it is mended", func() bool { return signedUp(n) == len(n.Log()) })
	if rec := records(t, dsn, "s2")[0]; rec.Reason != "" {
		t.Errorf("%+v", rec)
	}
}

func TestASecretInASubjectIsAFinding(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	start(t, flags(n, dsn, 100)).AwaitReady()
	n.Publish(servicetest.Runtime, mail("ghp_"+"0123456789abcdefghijABCDEFGHIJ012345"))
	servicetest.Eventually(t, "there is a finding", func() bool { return len(ofKind(n, "gov.findings.acme.high.~")) == 1 && signedUp(n) == len(n.Log()) })
	holds(t, n, dsn)
}

package auditor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// findingCases are the auditor's own rules, each broken and, beside it, nearly
// broken.
var findingCases = []struct {
	name  string
	play  func(t *testing.T, n *servicetest.NATS, dsn string) // until the log is to be audited
	finds []string                                            // the rules of all findings, sorted
	keeps []string                                            // the rules that are nearly broken
}{
	{"the log is replaced", func(t *testing.T, n *servicetest.NATS, dsn string) {
		n.Publish(servicetest.Runtime, mail("s1"))
		audited(t, n, flags(n, dsn, 100))
		n.Stop()
		n.Recreate()
	}, []string{ruleRecreated}, nil},
	{"the log is replaced, and the evidence deleted", func(t *testing.T, n *servicetest.NATS, dsn string) {
		n.Publish(servicetest.Runtime, mail("s1"))
		audited(t, n, flags(n, dsn, 100))
		last, err := streams.LastBySubject(t.Context(), n.JS("auditor"), streams.StreamCheckpoints, ">")
		servicetest.OK(t, err)
		n.Stop()
		n.Recreate()
		n.Publish("auditor", streams.Msg{Subject: last.Subject, Body: last.Body}) // of the log alone was the store lost
		database(t)
	}, []string{ruleRecreated}, nil},
	{"the server is started again", func(t *testing.T, n *servicetest.NATS, dsn string) {
		n.Publish(servicetest.Runtime, mail("s1"))
		audited(t, n, flags(n, dsn, 100))
		n.Stop()
		n.Restart()
		n.Publish(servicetest.Runtime, mail("s1"))
	}, nil, []string{ruleRecreated}},
	{"a policy allows what may never be released", func(t *testing.T, n *servicetest.NATS, _ string) {
		putPolicy(t, n, servicetest.Tenant, "version: 1\nname: mail\nrules:\n  - {name: x, detectors: [github_token], action: allow}\n")
		n.Publish(servicetest.Runtime, mail("s1"))
	}, []string{build.FindingHeadersWithheld, build.FindingRedactionFailed}, nil},
	{"a policy allows what may be", func(t *testing.T, n *servicetest.NATS, _ string) {
		putPolicy(t, n, servicetest.Tenant, "version: 1\nname: mail\nrules:\n  - {name: x, detectors: [email], action: allow}\n")
		n.Publish(servicetest.Runtime, mail("s1"))
	}, nil, []string{build.FindingRedactionFailed}},
	{"a body with too many addresses", func(_ *testing.T, n *servicetest.NATS, _ string) {
		n.Publish(servicetest.Runtime, withBody(addresses(513)))
	}, []string{build.FindingTooMany}, nil},
	{"a body with many addresses", func(_ *testing.T, n *servicetest.NATS, _ string) {
		n.Publish(servicetest.Runtime, withBody(addresses(512)))
	}, nil, []string{build.FindingTooMany}},
	{"what was found is made again", func(t *testing.T, n *servicetest.NATS, dsn string) {
		n.Publish(servicetest.Runtime, withBody(addresses(513)))
		audited(t, n, flags(n, dsn, 100))
		database(t) // is lost
		n.Publish(servicetest.Runtime, mail("s1"))
	}, []string{build.FindingTooMany}, nil},
	{"headers with too many addresses", func(_ *testing.T, n *servicetest.NATS, _ string) {
		n.Publish(servicetest.Runtime, withHeader(addresses(513)))
	}, []string{build.FindingHeadersWithheld}, nil},
	{"headers with many addresses", func(_ *testing.T, n *servicetest.NATS, _ string) {
		n.Publish(servicetest.Runtime, withHeader(addresses(512)))
	}, nil, []string{build.FindingHeadersWithheld}},
	{"a session that is named by a token", func(_ *testing.T, n *servicetest.NATS, _ string) {
		n.Publish(servicetest.Runtime, mail("ghp_"+"0123456789abcdefghijABCDEFGHIJ012345"))
	}, []string{build.FindingSecretInSubject}, nil},
	{"a session whose name begins like a token", func(_ *testing.T, n *servicetest.NATS, _ string) {
		n.Publish(servicetest.Runtime, mail("ghp_cleanup"))
	}, nil, []string{build.FindingSecretInSubject}},
}

func addresses(count int) (list []string) {
	for i := range count {
		list = append(list, fmt.Sprintf("dana%d@other.example", i))
	}
	return list
}

func withBody(texts []string) streams.Msg {
	m := mail("s1")
	m.Body, _ = json.Marshal(map[string]any{"tool_input": texts})
	return m
}

func withHeader(values []string) streams.Msg {
	m := mail("s1")
	m.Header = map[string][]string{"X-Note": values}
	return m
}

func TestFindings(t *testing.T) {
	severity := map[string]events.Severity{}
	for _, r := range Rules() {
		severity[r.Name] = r.Severity
	}
	for _, tc := range findingCases {
		t.Run(tc.name, func(t *testing.T) {
			n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
			tc.play(t, n, dsn)
			before := len(ofKind(n, "gov.findings."))
			counts := metrics.New("auditor")
			auditedBy(t, n, servicetest.Run(t, func(ctx context.Context, env daemon.Env) error {
				env.Metrics = counts
				return Run(ctx, flags(n, dsn, 100), env)
			}))
			var found []string
			for i, body := range ofKind(n, "gov.findings.") {
				f, err := events.DecodeRecord[events.Finding]([]byte(body))
				servicetest.OK(t, err)
				counted := fmt.Sprintf(`countersign_findings_total{rule="%s",service="auditor",severity="%s",shard="GOV"} 1`, f.Rule, f.Severity)
				if i >= before && !strings.Contains(string(counts.Text()), counted+"\n") {
					t.Errorf("%s is not counted", f.Rule)
				}
				if found = append(found, f.Rule); f.Severity != severity[f.Rule] || f.Explanation == "" || f.Remedy == "" {
					t.Errorf("%+v", f)
				}
			}
			if slices.Sort(found); !slices.Equal(found, tc.finds) {
				t.Errorf("findings of %v, want %v", found, tc.finds)
			}
		})
	}
}

// TestFindingsCoverage: every rule is broken by a case and kept by another that
// looks alike.
func TestFindingsCoverage(t *testing.T) {
	broken, kept := map[string]bool{}, map[string]bool{}
	for _, tc := range findingCases {
		for _, rule := range tc.finds {
			broken[rule] = true
		}
		for _, rule := range tc.keeps {
			kept[rule] = true
			if slices.Contains(tc.finds, rule) {
				t.Errorf("%q breaks %s and keeps it", tc.name, rule)
			}
		}
	}
	for _, r := range Rules() {
		if !broken[r.Name] || !kept[r.Name] {
			t.Errorf("%s: a case that breaks it %v, one that keeps it %v", r.Name, broken[r.Name], kept[r.Name])
		}
	}
}

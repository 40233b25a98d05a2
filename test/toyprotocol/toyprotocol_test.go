// Package toyprotocol_test runs a protocol that exists in tests alone through the whole pipeline:
// client, admitter, correlator, auditor, `export --session` and `verify --bundle`. The protocol is
// one row in the table of each stage; the folders named toyprotocol have them (docs/adr/0023).
package toyprotocol_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissiontoy "github.com/countersign-dev/countersign/admission/toyprotocol"
	"github.com/countersign-dev/countersign/client"
	compliancetoy "github.com/countersign-dev/countersign/compliance/toyprotocol"
	correlationtoy "github.com/countersign-dev/countersign/correlation/toyprotocol"
	"github.com/countersign-dev/countersign/events"
	eventstoy "github.com/countersign-dev/countersign/events/protocol/toyprotocol"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	evidencetoy "github.com/countersign-dev/countersign/evidence/toyprotocol"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/export"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/verify"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/auditor"
	"github.com/countersign-dev/countersign/internal/service/correlator"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/schemas"
	schemastoy "github.com/countersign-dev/countersign/schemas/toyprotocol"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) {
	engine.RunChildIfAsked() // the engine is a process of this program
	os.Exit(m.Run())
}

// A further protocol passes from admission to a verified bundle by its rows alone.
func TestToyProtocolFromAdmissionToExport(t *testing.T) {
	admissiontoy.AddRow(t)
	correlationtoy.AddRow(t)
	evidencetoy.AddRow(t)
	compliancetoy.AddRow(t)
	n := servicetest.Start(t, streams.Shard{})
	dsn := startEngine(t)

	admit(t, n)
	log := correlateAndAudit(t, n, dsn)
	checkSubjects(t, log)
	checkSchemas(t, log)

	members := exportSession(t, n, dsn)
	for _, want := range []string{"gov.events.acme.rt1.toy.s1.bedtime", `"diary":"[redacted:never_store]"`, "yes: bedtime at sequence", "tool send_mail · call c1 · protocol toy", "orphan_completion"} {
		if !strings.Contains(members, want) {
			t.Errorf("the bundle does not have %q", want)
		}
	}
	for _, secret := range []string{"swordfish", "hunter2-secret"} {
		if strings.Contains(members, secret) {
			t.Errorf("the bundle has %q", secret)
		}
	}
}

func startEngine(t *testing.T) (dsn string) {
	e, err := engine.Start(t.Context(), engine.Options{DataDir: t.TempDir(), Embedded: true, MaxMemory: 1 << 30})
	if errors.Is(err, engine.ErrFetch) || errors.Is(err, engine.ErrPlatform) {
		t.Skipf("no ClickHouse engine to test with: %v", err)
	}
	servicetest.OK(t, err)
	t.Cleanup(func() { servicetest.OK(t, e.Stop(context.Background())) })
	return e.DSN()
}

// admit runs the admitter: a call is admitted and runs, a second one runs without a request, the
// session ends, and a request that gets no verdict is reported.
func admit(t *testing.T, n *servicetest.NATS) {
	kv, err := n.JS("operator").KeyValue(t.Context(), streams.BucketPolicies)
	servicetest.OK(t, err)
	_, err = kv.Put(t.Context(), "toys.yaml", []byte(admissiontoy.Policy))
	servicetest.OK(t, err)
	f := admitter.Flags{Flags: n.Flags("admitter"), MaxInflight: 64, MemoryLimit: 2048, Timeout: 4 * time.Second}
	service := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return admitter.Run(ctx, f, env) }).AwaitReady()
	var lost error
	c, err := client.New(n.Conn(servicetest.Runtime), client.Options{Tenant: servicetest.Tenant, Publisher: servicetest.Runtime,
		PublicKey: publicKey(t, n), Timeout: servicetest.Guard, OnUnreported: func(_ []byte, err error) { lost = err }})
	servicetest.OK(t, err)
	defer c.Close()

	call := client.Call{Protocol: admissiontoy.Token, Body: []byte(admissiontoy.Request), Tool: "send_mail", Session: "s1", ToolCallID: "c1", Arguments: []byte(admissiontoy.Arguments)}
	if v := c.Admit(t.Context(), call); !v.Allowed() || v.Permits(call.Arguments) != nil {
		t.Fatalf("%+v", v)
	}
	publish := func(event string) error { return c.Publish(t.Context(), admissiontoy.Token, []byte(event)) }
	if err := publish(`{"run":"s1","was":"ran"}`); err == nil || !strings.Contains(err.Error(), "aaep, agenthook") {
		t.Fatalf("published without a row: %v", err)
	}
	eventstoy.AddRow(t)
	for _, event := range []string{
		`{"run":"s1","was":"began","id":"e1","no":"c1","do":"send_mail"}`,
		`{"run":"s1","was":"ran","id":"e2","no":"c1","do":"send_mail"}`,
		`{"run":"s1","was":"ran","id":"e3","no":"c2","do":"send_mail"}`,
		`{"run":"s1","was":"bedtime","id":"e4","diary":"swordfish"}`,
	} {
		servicetest.OK(t, publish(event))
	}
	servicetest.OK(t, service.Stop())
	late, cancel := context.WithCancel(t.Context())
	cancel()
	c.Admit(late, call)
	if c.Close(); lost == nil {
		t.Error("no report was made of a request without a verdict")
	}
}

// correlateAndAudit runs the other services until a checkpoint covers all outputs of the
// correlator. It returns the log.
func correlateAndAudit(t *testing.T, n *servicetest.NATS, dsn string) (log []events.LogMessage) {
	cf := correlator.Flags{Flags: n.Flags("correlator"), MissingAfter: time.Hour, StateEvery: 200_000}
	af := auditor.Flags{Flags: n.Flags("auditor"), ClickHouse: dsn, Batch: 1000, CheckpointEvery: 10 * time.Millisecond}
	services := []*servicetest.Service{
		servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return correlator.Run(ctx, cf, env) }),
		servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return auditor.Run(ctx, af, env) }),
	}
	js := n.JS("operator")
	servicetest.Eventually(t, "the correlator reports the last call", func() bool {
		orphan, err := streams.LastBySubject(t.Context(), js, streams.DefaultShard, "gov.calls.acme.orphaned.s1")
		servicetest.OK(t, err)
		return orphan != nil
	})
	log = n.Log()
	servicetest.Eventually(t, "a checkpoint covers the log", func() bool {
		published := n.LastPublished(streams.StreamCheckpoints)
		if published == nil {
			return false
		}
		checkpoint, err := tree.PeekCheckpoint(string(published.Body))
		servicetest.OK(t, err)
		return checkpoint.Size >= int64(len(log))
	})
	for _, service := range services {
		if err := service.Stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	return log
}

func checkSubjects(t *testing.T, log []events.LogMessage) {
	var subjects []string
	for _, m := range log {
		if strings.HasPrefix(m.Subject, "gov.events.") {
			subjects = append(subjects, strings.TrimPrefix(m.Subject, "gov.events.acme.rt1.toy.s1."))
		}
	}
	if want := []string{"request", "began", "ran", "ran", "bedtime"}; !slices.Equal(subjects, want) {
		t.Errorf("%q", subjects)
	}
}

// checkSchemas validates the decision, the correlator's records and the events by a registry with
// a row for the protocol.
func checkSchemas(t *testing.T, log []events.LogMessage) {
	registry, err := schemas.Load(append(schemas.Protocols(), schemastoy.Row()))
	servicetest.OK(t, err)
	validated := map[string]int{}
	for _, m := range log {
		p, _ := subject.Space{}.Parse(m.Subject)
		schema := map[subject.Class]string{subject.Events: "toy/event", subject.Decisions: "countersign/decision",
			subject.Calls: "countersign/call", subject.Findings: "countersign/finding"}[p.Class]
		if schema == "" || p.Type == subject.TypeRequest {
			continue
		}
		document, err := strictjson.ReadObject(m.Body, strictjson.DefaultLimits)
		servicetest.OK(t, err)
		if violations := registry.Validate(schema, document); violations != nil {
			t.Errorf("%s: %v", m.Subject, violations)
		}
		validated[schema]++
	}
	if got := fmt.Sprint(validated); got != "map[countersign/call:3 countersign/decision:1 countersign/finding:1 toy/event:4]" {
		t.Errorf("validated %s", got)
	}
}

// exportSession runs the commands `export --session` and `verify --bundle`. It returns the texts
// of the bundle's files.
func exportSession(t *testing.T, n *servicetest.NATS, dsn string) string {
	file := filepath.Join(t.TempDir(), "s1.zip")
	var out bytes.Buffer
	stdio := ui.Stdio{In: strings.NewReader(""), Out: &out, Err: &out}
	system := target.Flags{Server: n.URL(), User: "operator", Password: "pw-operator", ClickHouse: dsn, Tenant: servicetest.Tenant, Prefix: subject.DefaultPrefix, Stream: streams.DefaultShard}
	if err := (&export.Cmd{Flags: system, Key: publicKey(t, n), Session: "s1", Out: file}).Run(t.Context(), stdio); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := (&verify.Cmd{Bundle: file, Key: publicKey(t, n)}).Run(t.Context(), stdio); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("%s", &out)
	return readMembers(t, file)
}

func publicKey(t *testing.T, n *servicetest.NATS) string {
	public, err := os.ReadFile(filepath.Join(n.Keys, keys.CheckpointPublicFile))
	servicetest.OK(t, err)
	return string(public)
}

// readMembers returns the texts of a bundle's files.
func readMembers(t *testing.T, file string) string {
	z, err := zip.OpenReader(file)
	servicetest.OK(t, err)
	defer func() { _ = z.Close() }()
	var all strings.Builder
	for _, member := range z.File {
		r, err := member.Open()
		servicetest.OK(t, err)
		_, err = io.Copy(&all, io.LimitReader(r, 1<<20))
		servicetest.OK(t, err)
	}
	return all.String()
}

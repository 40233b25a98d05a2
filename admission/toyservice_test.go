package admission_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/service/admitter"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// addToyEvents adds the toy protocol to the stage of events: one row in the table. Its events
// are {"run": session, "was": type}.
func addToyEvents(t *testing.T) {
	protocol.Rows[admission.ToyName] = protocol.Row{
		Route: func(raw []byte) (session, typ string, err error) {
			tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
			session, _ = tree["run"].(string)
			typ, _ = tree["was"].(string)
			return session, typ, err
		},
		FailModeEvent: func(f protocol.FailMode) ([]byte, bool, error) {
			return []byte(`{"run":"` + f.Session + `","was":"fail_mode.` + f.Reason + `"}`), true, nil
		},
	}
	t.Cleanup(func() { delete(protocol.Rows, admission.ToyName) })
}

// A further protocol is admitted and published through the services and the client, becomes
// evidence and is exported as a bundle that verifies, by its rows alone (docs/adr/0023).
func TestToyProtocolThroughServices(t *testing.T) {
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	admission.AddToy(t)
	n := servicetest.Start(t, streams.Shard{})
	kv, err := n.JS("operator").KeyValue(t.Context(), streams.BucketPolicies)
	servicetest.OK(t, err)
	_, err = kv.Put(t.Context(), "toys.yaml", []byte(toyPolicy))
	servicetest.OK(t, err)
	f := admitter.Flags{Flags: n.Flags("admitter"), MaxInflight: 64, MemoryLimit: 2048, Timeout: 4 * time.Second}
	service := servicetest.Run(t, func(ctx context.Context, env daemon.Env) error { return admitter.Run(ctx, f, env) }).AwaitReady()

	public, err := os.ReadFile(filepath.Join(n.Keys, keys.CheckpointPublicFile))
	servicetest.OK(t, err)
	var lost error
	c, err := client.New(n.Conn(servicetest.Runtime), client.Options{Tenant: servicetest.Tenant, Publisher: servicetest.Runtime,
		PublicKey: string(public), Timeout: servicetest.Guard, OnUnreported: func(_ []byte, err error) { lost = err }})
	servicetest.OK(t, err)
	defer c.Close()
	args := []byte(`{"to":"a@example.com","password":"hunter2-secret"}`)
	v := c.Admit(t.Context(), client.Call{Protocol: admission.ToyName, Body: []byte(admission.ToyRequest),
		Tool: "send_mail", Session: "s1", ToolCallID: "c1", Arguments: args})
	if !v.Allowed() || v.Permits(args) != nil {
		t.Fatalf("%+v", v)
	}

	ran := []byte(`{"run":"s1","was":"ran"}`)
	if err := c.Publish(t.Context(), admission.ToyName, ran); err == nil || !strings.Contains(err.Error(), "aaep, agenthook") {
		t.Fatalf("published without a row: %v", err)
	}
	addToyEvents(t)
	servicetest.OK(t, c.Publish(t.Context(), admission.ToyName, ran))
	servicetest.OK(t, c.Publish(t.Context(), admission.ToyName, []byte(`{"run":"s1","was":"bedtime","diary":"swordfish"}`)))
	servicetest.OK(t, service.Stop())
	c.Admit(withoutTime(t), client.Call{Protocol: admission.ToyName, Body: []byte(admission.ToyRequest), Session: "s1"})
	if c.Close(); lost == nil {
		t.Error("no report was made of a request without a verdict")
	}

	var subjects []string
	for _, m := range n.Log() {
		if strings.Contains(m.Subject, "."+admission.ToyName+".") {
			subjects = append(subjects, m.Subject)
		}
	}
	want := []string{"gov.events.acme.rt1.toy.s1.request", "gov.events.acme.rt1.toy.s1.ran", "gov.events.acme.rt1.toy.s1.bedtime"}
	if !slices.Equal(subjects, want) {
		t.Errorf("%q", subjects)
	}
	checkToySchemas(t, n.Log())
	checkToyBundle(t, n)
}

func withoutTime(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

const toyPolicy = `
apiVersion: countersign.dev/v1
kind: AdmissionPolicy
metadata: {name: toys}
spec:
  match: {protocols: [toy], tools: [send_mail]}
  rules: [{name: all, when: 'event_type == "do"', verdict: allow, reason: toy_only}]
`

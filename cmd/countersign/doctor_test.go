package main

import (
	"context"
	"os"
	"strings"
	"testing"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/cmd/internal/rig"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/streams"
)

func asRuntime(url, user string) *target.Target {
	return target.FromReady(target.Ready{NATSURL: url, Tenant: rig.Tenant, Roles: map[string]target.Role{
		target.Runtime: {User: user, Password: "pw-" + user}, target.Subscriber: {User: "subscriber", Password: "pw-subscriber"},
	}})
}

func TestDoctorTriesPermissionsOut(t *testing.T) {
	examine := func(tgt *target.Target) examined {
		return doctor{operator: operator{t: tgt}}.permissions(t.Context())[0]
	}
	n := rig.Start(t, streams.Shard{})
	if got := examine(asRuntime(n.URL(), rig.Runtime)); got.Level != levelOK {
		t.Errorf("as it should be: %+v", got)
	}
	flat := flatServer(t)
	got := examine(asRuntime(flat, rig.Runtime))
	if got.Level != levelUnsafe || !strings.Contains(got.Detail, "has JetStream and can listen for admission requests") || strings.Contains(got.Detail, "pw-") {
		t.Errorf("a server without permissions: %+v", got)
	}
	if got := examine(&target.Target{}); got.Level != levelWarn {
		t.Errorf("without a runtime's credentials: %+v", got)
	}
	if got := examine(asRuntime("nats://127.0.0.1:1", rig.Runtime)); got.Level != levelUnsafe {
		t.Errorf("no server: %+v", got)
	}
}

// flatServer is a server as one should not be: everybody may do everything.
func flatServer(t *testing.T) (url string) {
	t.Helper()
	opts := &natsd.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*natsd.User{{Username: rig.Runtime, Password: "pw-" + rig.Runtime}}}
	s, err := natsd.NewServer(opts)
	rig.OK(t, err)
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(rig.Guard) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// A tail by a user who may not subscribe must say so and not wait for ever.
func TestTailOfWhoMayNot(t *testing.T) {
	n := rig.Start(t, streams.Shard{})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Guard)
	defer cancel()
	nc := n.Conn(rig.Runtime)
	err := client.Follow(ctx, nc, client.FollowOptions{Tenant: rig.Tenant}, nil)
	if err == nil || !strings.Contains(err.Error(), "subscriber's credentials") {
		t.Errorf("error %v", err)
	}
}

func TestUpConfig(t *testing.T) {
	path := t.TempDir() + "/up.yaml"
	write(t, path, "tenant: globex\nnats-port: 4242\nlog-level: debug\ndata-dir: "+t.TempDir()+"\n")
	c := &upCmd{Config: path, LogLevel: "warn"}
	rig.OK(t, c.settle())
	if c.Tenant != "globex" || c.NATSPort != 4242 || c.LogLevel != "warn" || c.SyncInterval != "always" || c.Host != "127.0.0.1" {
		t.Errorf("%+v", c)
	}
	write(t, path, "")
	c = &upCmd{Config: path, DataDir: "relative"}
	rig.OK(t, c.settle())
	if !strings.HasPrefix(c.DataDir, "/") {
		t.Errorf("data directory %s", c.DataDir)
	}
	for _, text := range []string{"tenant: [", "tenants: x", "{}x", "tenant: a\n---\ntenant: b\n", "tenant: '../x'", "sync-interval: never"} {
		write(t, path, text)
		if err := (&upCmd{Config: path}).settle(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	rig.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

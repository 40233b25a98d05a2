package deploy_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/streams"
)

// TestNATSCluster runs the three servers of cluster.conf in this process and
// provisions a shard with three replicas on them. A stream that is made later has as many, and a
// setting that differs is changed as operating.md says: by a user of the services' account that is
// there for the change alone.
func TestNATSCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take seconds to elect a leader")
	}
	setPasswords(t, read(t, natsConf))
	addr := freeAddresses(t, 3)
	for i, a := range addr {
		t.Setenv(fmt.Sprintf("COUNTERSIGN_ROUTE_%d", i+1), fmt.Sprintf("%q", "nats://"+a))
	}
	var servers []*natsd.Server
	for i, a := range addr {
		t.Setenv("COUNTERSIGN_NODE", fmt.Sprintf("n%d", i+1))
		t.Setenv("COUNTERSIGN_HOST", `"localhost"`)
		t.Setenv("COUNTERSIGN_ROUTE", fmt.Sprintf("%q", a))
		servers = append(servers, boot(t, "deploy/nats/cluster.conf", func(o *natsd.Options) {
			services := o.Accounts[slices.IndexFunc(o.Accounts, func(a *natsd.Account) bool { return a.Name == "COUNTERSIGN" })]
			o.Users = append(o.Users, &natsd.User{Username: "change", Password: "pw-" + passwordVar("change"), Account: services})
			if o.ServerName != fmt.Sprintf("n%d", i+1) || o.Host != "localhost" || o.Cluster.Name != "countersign" || len(o.Routes) != 3 || !o.SyncAlways {
				t.Fatalf("server %d is not what the file says: name %q, host %q, cluster %q, %d routes, sync always %v",
					i+1, o.ServerName, o.Host, o.Cluster.Name, len(o.Routes), o.SyncAlways)
			}
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	awaitLeader(ctx, t, servers)
	js := jet(t, connect(t, servers[0], "provisioner"))
	_, err := streams.Provision(ctx, js, streams.Shard{Replicas: 3})
	ok(t, err)
	st, err := js.Stream(ctx, streams.DefaultShard)
	ok(t, err)
	info := st.CachedInfo()
	if info.Config.Replicas != 3 || info.Cluster == nil || len(info.Cluster.Replicas) != 2 || info.Config.Storage != jetstream.FileStorage {
		t.Errorf("the log has %d replicas: %+v", info.Config.Replicas, info.Cluster)
	}

	const later = "KV_" + streams.BucketPublishers // as if the program that provisioned had not known it
	change := jet(t, connect(t, servers[0], "change"))
	ok(t, change.DeleteStream(ctx, later))
	report, err := streams.Provision(ctx, js, streams.Shard{})
	ok(t, err)
	st, err = js.Stream(ctx, later)
	ok(t, err)
	made := st.CachedInfo().Config
	if len(report.Created) != 1 || made.Replicas != 3 {
		t.Errorf("made %v, with %d replicas", report.Created, made.Replicas)
	}
	for replicas, want := range map[int]bool{3: true, 1: false} {
		made.Replicas = replicas
		_, err := change.UpdateStream(ctx, made)
		ok(t, err)
		if _, err = streams.Provision(ctx, js, streams.Shard{Replicas: replicas}); (err == nil) != want {
			t.Errorf("one stream changed to %d replicas, all provisioned so: %v", replicas, err)
		}
	}
}

func freeAddresses(t *testing.T, n int) (list []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ok(t, err)
		defer func() { _ = l.Close() }()
		list = append(list, l.Addr().String())
	}
	return list
}

// awaitLeader waits until one of the servers leads and sees both others.
func awaitLeader(ctx context.Context, t *testing.T, servers []*natsd.Server) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(servers) {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatal("the servers did not form a cluster")
		case <-tick.C:
		}
	}
}

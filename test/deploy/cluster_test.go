package deploy_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/streams"
)

// TestNATSCluster runs the three servers of cluster.conf in this process and
// provisions a shard with three replicas on them.
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
			if o.ServerName != fmt.Sprintf("n%d", i+1) || o.Host != "localhost" || o.Cluster.Name != "countersign" || len(o.Routes) != 3 || !o.SyncAlways {
				t.Fatalf("server %d is not what the file says: name %q, host %q, cluster %q, %d routes, sync always %v",
					i+1, o.ServerName, o.Host, o.Cluster.Name, len(o.Routes), o.SyncAlways)
			}
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	awaitLeader(ctx, t, servers)
	nc := connect(t, servers[0], "provisioner")
	_, err := streams.Provision(ctx, jet(t, nc), streams.Shard{Replicas: 3})
	ok(t, err)
	st, err := jet(t, nc).Stream(ctx, streams.DefaultShard)
	ok(t, err)
	info := st.CachedInfo()
	if info.Config.Replicas != 3 || info.Cluster == nil || len(info.Cluster.Replicas) != 2 || info.Config.Storage != jetstream.FileStorage {
		t.Errorf("the log has %d replicas: %+v", info.Config.Replicas, info.Cluster)
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

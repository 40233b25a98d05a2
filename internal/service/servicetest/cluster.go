package servicetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/streams"
)

// serverConf is the environment variable that makes a child process of a test a NATS server; it
// names the server's configuration file.
const serverConf = "COUNTERSIGN_RIG_SERVER"

// A test binary that is started with serverConf is only a NATS server.
func init() {
	if path := os.Getenv(serverConf); path != "" {
		if err := serveNATS(path); err != nil {
			fmt.Fprintln(os.Stderr, "rig:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func serveNATS(path string) error {
	o, err := natsd.ProcessConfigFile(path)
	if err != nil {
		return err
	}
	o.NoSigs, o.NoLog = true, true
	s, err := natsd.NewServer(o)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// clusterUser may do everything in the services' account; tests use it to move leaders.
const clusterUser = "rig-admin"

// Cluster is a provisioned cluster of three servers on loopback, each in a process of its own,
// with three replicas of every stream.
type Cluster struct {
	*NATS
	nodes []*node
	admin *nats.Conn
}

type node struct {
	tb        testing.TB
	name, url string
	conf, dir string
	cmd       *exec.Cmd
}

// StartCluster runs a cluster until the test ends. syncIntervals has the sync setting of each
// server ("always", "2m"); dirs, if given, has the store directories of the first servers.
func StartCluster(tb testing.TB, syncIntervals [3]string, dirs ...string) *Cluster {
	tb.Helper()
	c := &Cluster{NATS: newNATS(tb, streams.Shard{Replicas: len(syncIntervals)})}
	ports := freePorts(tb, 2*len(syncIntervals))
	var routes, urls []string
	for i := range syncIntervals {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats://127.0.0.1:%d", ports[2*i+1])))
	}
	for i, interval := range syncIntervals {
		cfg := c.cfg
		cfg.Name, cfg.Port, cfg.StoreDir, cfg.SyncInterval = fmt.Sprintf("n%d", i+1), ports[2*i], tb.TempDir(), interval
		if i < len(dirs) {
			cfg.StoreDir = dirs[i]
		}
		text, err := cfg.Render()
		OK(tb, err)
		account := fmt.Sprintf("%q {", streams.ServicesAccount)
		head, tail, _ := strings.Cut(string(text), account)
		tail = strings.Replace(tail, "users: [", fmt.Sprintf("users: [ { user: %q, password: %q }", clusterUser, "pw-"+clusterUser), 1)
		conf := head + account + tail + fmt.Sprintf(`
cluster { name: "rig", listen: "127.0.0.1:%d", no_advertise: true, ping_interval: "1s", ping_max: 2, routes: [%s] }
`, ports[2*i+1], strings.Join(routes, ", "))
		n := &node{tb: tb, name: cfg.Name, url: fmt.Sprintf("nats://127.0.0.1:%d", cfg.Port), dir: cfg.StoreDir, conf: filepath.Join(tb.TempDir(), "nats.conf")}
		OK(tb, os.WriteFile(n.conf, []byte(conf), 0o600))
		c.nodes = append(c.nodes, n)
		urls = append(urls, n.url)
	}
	c.url = strings.Join(urls, ",")
	tb.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
		}
	})
	for _, n := range c.nodes {
		n.run()
	}
	c.provision()
	c.admin = c.Conn(clusterUser)
	return c
}

func (n *node) run() {
	n.tb.Helper()
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), serverConf+"="+n.conf)
	n.cmd.Stderr = os.Stderr
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	OK(n.tb, n.cmd.Start())
}

func (n *node) kill() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// provision waits until the servers have a leader and creates all streams and buckets.
func (c *Cluster) provision() {
	c.tb.Helper()
	Eventually(c.tb, "the cluster is provisioned", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		nc, err := streams.Connect(ctx, streams.ConnectOptions{URL: c.url, User: string(streams.RoleProvisioner), Password: "pw-" + string(streams.RoleProvisioner), Log: zerolog.Nop()})
		if err != nil {
			return false
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		OK(c.tb, err)
		_, err = streams.Provision(ctx, js, c.shard)
		var conflict *streams.ConflictError
		if errors.As(err, &conflict) {
			c.tb.Fatal(err)
		}
		return err == nil
	})
}

// URLOf is the URL of one server, counted from zero; URL lists all.
func (c *Cluster) URLOf(i int) string { return c.nodes[i].url }

// URLWithout lists all servers except one.
func (c *Cluster) URLWithout(i int) string {
	var list []string
	for j, n := range c.nodes {
		if j != i {
			list = append(list, n.url)
		}
	}
	return strings.Join(list, ",")
}

// Pause stops a server's process as SIGSTOP does: its connections stay.
func (c *Cluster) Pause(i int) {
	c.tb.Helper()
	OK(c.tb, c.nodes[i].cmd.Process.Signal(syscall.SIGSTOP))
}

// Resume continues a paused server.
func (c *Cluster) Resume(i int) {
	c.tb.Helper()
	OK(c.tb, c.nodes[i].cmd.Process.Signal(syscall.SIGCONT))
}

// ConnAt connects as a user to server i, with the URLs of all servers.
func (c *Cluster) ConnAt(user string, i int) *nats.Conn {
	c.tb.Helper()
	for end := time.Now().Add(Guard); time.Now().Before(end); {
		nc := c.Conn(user)
		if nc.ConnectedUrl() == c.nodes[i].url {
			return nc
		}
		nc.Close()
	}
	c.tb.Fatalf("no connection to server %d", i)
	return nil
}

// Leader is the server that leads a stream, -1 without a leader.
func (c *Cluster) Leader(stream string) int {
	var info struct {
		Cluster struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	msg, err := c.admin.Request("$JS.API.STREAM.INFO."+stream, nil, 2*time.Second)
	if err != nil || json.Unmarshal(msg.Data, &info) != nil {
		return -1
	}
	for i, n := range c.nodes {
		if n.name == info.Cluster.Leader {
			return i
		}
	}
	return -1
}

// LeadElsewhere moves the leaders of all streams away from server i.
func (c *Cluster) LeadElsewhere(i int) {
	c.tb.Helper()
	other := c.nodes[(i+1)%len(c.nodes)].name
	names := jetstreamNames(c)
	Eventually(c.tb, "another server leads every stream", func() bool {
		for _, name := range names {
			switch c.Leader(name) {
			case i:
				_, _ = c.admin.Request("$JS.API.STREAM.LEADER.STEPDOWN."+name, []byte(fmt.Sprintf(`{"placement":{"preferred":%q}}`, other)), 2*time.Second)
				return false
			case -1:
				return false
			}
		}
		return true
	})
}

func jetstreamNames(c *Cluster) (list []string) {
	c.tb.Helper()
	js, err := jetstream.New(c.admin)
	OK(c.tb, err)
	ctx, cancel := context.WithTimeout(context.Background(), Guard)
	defer cancel()
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		list = append(list, name)
	}
	OK(c.tb, names.Err())
	return list
}

func freePorts(tb testing.TB, n int) (list []int) {
	tb.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		OK(tb, err)
		defer func() { _ = l.Close() }()
		list = append(list, l.Addr().(*net.TCPAddr).Port)
	}
	return list
}

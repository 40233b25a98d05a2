package correlator

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

func TestShardFlags(t *testing.T) {
	f := Flags{Flags: daemon.Flags{Server: "nats://one", Stream: "GOV"}, StateDir: "d"}
	list := func(texts ...string) (out []string) {
		f.Shards = texts
		shards, err := f.shardFlags()
		if err != nil {
			return []string{"refused"}
		}
		for _, s := range shards {
			if s.StateDir != "d" || s.Shards != nil {
				t.Errorf("%v: %+v", texts, s)
			}
			out = append(out, s.Stream+" on "+s.Server)
		}
		return out
	}
	for _, c := range []struct{ given, want []string }{
		{nil, []string{"GOV on nats://one"}},
		{[]string{"EAST"}, []string{"EAST on nats://one"}},
		{[]string{"GOV=nats://a:4222", "EAST=nats://b?x=y"}, []string{"GOV on nats://a:4222", "EAST on nats://b?x=y"}},
		{[]string{"GOV", "GOV=nats://b"}, []string{"refused"}},
		{[]string{""}, []string{"refused"}},
		{[]string{"=nats://b"}, []string{"refused"}},
		{[]string{"EAST="}, []string{"refused"}},
		{[]string{"a/../b"}, []string{"refused"}},
	} {
		if got := list(c.given...); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.given, got)
		}
	}
}

// eastern is the name of a second shard, on a server of its own.
const eastern = "EAST"

// put out reads what the correlator has written on a shard.
func putOut(n *servicetest.NATS, stream string) (findings int) {
	done := errors.New("caught up")
	err := streams.ReadLog(context.Background(), n.JS(string(streams.RoleAuditor)), streams.ReadOptions{Stream: stream, Idle: func() error { return done }},
		func(batch []events.LogMessage) error {
			for _, m := range batch {
				if strings.HasPrefix(m.Subject, "gov.findings.") {
					findings++
				}
			}
			return nil
		})
	if !errors.Is(err, done) {
		return -1
	}
	return findings
}

// TestSeveralShards: one process correlates two shards, each with its own lease,
// snapshot and metrics, and one goes on while the other's server is away.
func TestSeveralShards(t *testing.T) {
	gov, east := servicetest.Start(t, streams.Shard{}), servicetest.Start(t, streams.Shard{Name: eastern})
	f := flags(gov, long)
	f.StateDir, f.StateEvery = t.TempDir(), saveSome
	f.Shards = []string{streams.DefaultShard + "=" + gov.URL(), eastern + "=" + east.URL()}
	counts, health := metrics.New("correlator"), daemon.NewHealth()
	ready := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, f, daemon.Env{Log: zerolog.Nop(), Health: health, Metrics: counts, Ready: func() error { close(ready); return nil }})
	}()
	<-ready
	publish := func(n *servicetest.NATS, name, stream string, want int) {
		t.Helper()
		n.Publish(servicetest.Runtime, session(t, name)...)
		servicetest.Eventually(t, "findings on "+stream, func() bool { return putOut(n, stream) >= want })
	}
	publish(gov, "sess-0001", streams.DefaultShard, 1)
	publish(east, "sess-0002", eastern, 1)
	first := putOut(gov, streams.DefaultShard)

	report := health.Report()
	for _, stream := range []string{streams.DefaultShard, eastern} {
		if report.Services[stream].Role != daemon.RoleActive {
			t.Errorf("%s: %+v", stream, report)
		}
	}
	for n, stream := range map[*servicetest.NATS]string{gov: streams.DefaultShard, east: eastern} {
		kv, err := n.JS("correlator").KeyValue(ctx, streams.BucketLeases)
		servicetest.OK(t, err)
		if _, err := kv.Get(ctx, "correlator."+stream); err != nil {
			t.Errorf("the lease of %s: %v", stream, err)
		}
	}
	page := httptest.NewRecorder()
	counts.ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for _, stream := range []string{streams.DefaultShard, eastern} {
		if !slices.ContainsFunc(strings.Split(page.Body.String(), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "countersign_correlator_messages_total{") && strings.Contains(line, `shard="`+stream+`"`)
		}) {
			t.Errorf("no messages of %s among the metrics", stream)
		}
	}

	east.Stop()
	publish(gov, "sess-0003", streams.DefaultShard, first+1)
	servicetest.Eventually(t, "it says that a shard is not well", func() bool {
		r := health.Report()
		return r.Status == daemon.StatusUnhealthy && r.Services[eastern].Status == daemon.StatusUnhealthy && r.Services[streams.DefaultShard].Status == daemon.StatusOK
	})
	east.Restart()
	before := 1
	servicetest.Eventually(t, "the shard is back", func() bool { before = putOut(east, eastern); return before > 0 })
	publish(east, "sess-0004", eastern, before+1)

	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	for _, stream := range []string{streams.DefaultShard, eastern} {
		if _, err := os.Stat(filepath.Join(f.StateDir, "correlator-"+stream+".snapshot")); err != nil {
			t.Error(err)
		}
	}
}

// TestAShardOfAnUntrustedLogStaysStopped: the others go on, and without others the process ends.
func TestAShardOfAnUntrustedLogStaysStopped(t *testing.T) {
	gov, east := servicetest.Start(t, streams.Shard{}), servicetest.Start(t, streams.Shard{Name: eastern})
	f := flags(gov, long)
	f.Shards = []string{streams.DefaultShard + "=" + gov.URL(), eastern + "=" + east.URL()}
	loseFirst := func(n *servicetest.NATS, stream string) {
		t.Helper()
		_, err := streams.Erase(t.Context(), n.Conn(string(streams.RoleCustodian)), stream, 1)
		servicetest.OK(t, err)
	}
	east.Publish(servicetest.Runtime, session(t, "sess-0001")...)
	loseFirst(east, eastern)
	s := run(t, f)
	servicetest.Eventually(t, "the shard is stopped", func() bool {
		r := s.Health.Report().Services[eastern]
		return strings.Contains(r.Problems["shard"], "is stopped: stream EAST has a gap") && r.Role == daemon.RoleStandby
	})
	gov.Publish(servicetest.Runtime, session(t, "sess-0002")...)
	servicetest.Eventually(t, "findings of the other shard", func() bool { return putOut(gov, streams.DefaultShard) > 0 })
	s.Running()
	servicetest.OK(t, ignoreCanceled(s.Stop()))

	loseFirst(gov, streams.DefaultShard)
	if err := run(t, f).Wait(); !daemon.IsUntrusted(err) {
		t.Errorf("it ends with %v", err)
	}
}

// TestAShardBeginsAgainWithoutProblems: what an ended run reported is no problem of the next one,
// which would not clear it. Meanwhile this instance is not the active one.
func TestAShardBeginsAgainWithoutProblems(t *testing.T) {
	env := daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}
	env.Health.Set("session_keys", "the bucket does not answer")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = keepRunning(ctx, Flags{Flags: daemon.Flags{Keys: t.TempDir()}}, env) }() // without keys each run ends at once
	servicetest.Eventually(t, "the run has ended", func() bool { return env.Health.Report().Problems["shard"] != "" })
	if r := env.Health.Report(); len(r.Problems) != 1 || r.Role != daemon.RoleStandby {
		t.Errorf("%+v", r)
	}
	cancel()
	<-done
}

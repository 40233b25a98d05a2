package streams

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestProvisionTwice(t *testing.T) {
	f := start(t)
	js := f.js(f.conn("provisioner"))
	before := map[string]string{}
	for _, s := range (Shard{}).streamConfigs() {
		st, err := js.Stream(ctx(t), s.Name)
		ok(t, err)
		before[s.Name] = st.CachedInfo().Created.String()
	}
	rep, err := Provision(ctx(t), js, Shard{})
	ok(t, err)
	if len(rep.Created) != 0 || len(rep.Existing) != len(before) {
		t.Errorf("%+v", rep)
	}
	for name, created := range before {
		st, err := js.Stream(ctx(t), name)
		ok(t, err)
		if st.CachedInfo().Created.String() != created {
			t.Errorf("%s was made anew", name)
		}
	}
}

func TestProvisionConcurrently(t *testing.T) {
	cfg := testConfig(t)
	srv, err := startServer(t, cfg)
	ok(t, err)
	f := &fixture{tb: t, cfg: cfg, srv: srv}
	t.Cleanup(srv.Shutdown)
	var wg sync.WaitGroup
	for range 4 {
		js := f.js(f.conn("provisioner"))
		wg.Go(func() {
			if _, err := Provision(ctx(t), js, Shard{MaxBytes: 16 << 20, QuarantineAge: time.Hour}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestProvisionConflict(t *testing.T) {
	for _, tt := range []struct {
		name   string
		object string // created beforehand, changed by do
		do     func(*jetstream.StreamConfig)
		shard  Shard
		fields []string
	}{
		{"discard old", DefaultShard, func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, Shard{}, []string{"discard"}},
		{"memory", DefaultShard, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, Shard{}, []string{"storage"}},
		{"purge, rollup", DefaultShard, func(c *jetstream.StreamConfig) { c.DenyPurge, c.AllowRollup = false, true }, Shard{}, []string{"deny_purge", "allow_rollup_hdrs"}},
		{"no deletion", DefaultShard, func(c *jetstream.StreamConfig) { c.DenyDelete = true }, Shard{}, []string{"deny_delete"}},
		{"deletion", StreamCheckpoints, func(c *jetstream.StreamConfig) { c.DenyDelete = false }, Shard{}, []string{"deny_delete"}},
		{"max age", DefaultShard, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, Shard{}, []string{"max_age"}},
		{"subjects", DefaultShard, func(c *jetstream.StreamConfig) { c.Subjects = c.Subjects[1:] }, Shard{}, []string{"subjects"}},
		{"schedules", DefaultShard, func(c *jetstream.StreamConfig) {
			c.AllowMsgSchedules, c.AllowRollup, c.DenyPurge, c.AllowMsgTTL, c.Discard = true, true, false, true, jetstream.DiscardOld
		}, Shard{}, []string{"allow_msg_schedules"}},
		{"duplicate window", DefaultShard, func(c *jetstream.StreamConfig) { c.Duplicates = 0 }, Shard{}, []string{"duplicate_window"}},
		{"atomic", DefaultShard, func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, Shard{}, []string{"allow_atomic"}},
		{"async persist", DefaultShard, func(c *jetstream.StreamConfig) {
			c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false
		}, Shard{}, []string{"persist_mode"}},
		{"direct get", DefaultShard, func(c *jetstream.StreamConfig) { c.AllowDirect = true }, Shard{}, []string{"allow_direct"}},
		{"direct get of a bucket", "KV_policies", func(c *jetstream.StreamConfig) { c.AllowDirect = true }, Shard{}, []string{"allow_direct"}},
		{"max bytes asked for", DefaultShard, func(*jetstream.StreamConfig) {}, Shard{MaxBytes: 1 << 20}, []string{"max_bytes"}},
		{"quarantine age", StreamQuarantine, func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, Shard{}, []string{"max_age"}},
		{"history", "KV_policies", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, Shard{}, []string{"max_msgs_per_subject"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t)
			srv, err := startServer(t, cfg)
			ok(t, err)
			t.Cleanup(srv.Shutdown)
			f := &fixture{tb: t, cfg: cfg, srv: srv}
			js := f.js(f.conn("provisioner"))
			for _, s := range (Shard{}).streamConfigs() {
				if s.Name == tt.object {
					tt.do(&s)
					_, err := js.CreateStream(ctx(t), s)
					ok(t, err)
				}
			}
			for range 2 { // the second time says the same: nothing was changed
				_, err = Provision(ctx(t), js, tt.shard)
				var conflict *ConflictError
				if !errors.As(err, &conflict) {
					t.Fatalf("%v, want a conflict", err)
				}
				got := map[string]bool{}
				for _, d := range conflict.Differences {
					if d.Object != tt.object || d.Have == d.Want {
						t.Errorf("%+v", d)
					}
					got[d.Field] = true
				}
				for _, field := range tt.fields {
					if !got[field] || !strings.Contains(err.Error(), field) {
						t.Errorf("%s is not named: %v", field, err)
					}
				}
			}
		})
	}
}

func TestDurability(t *testing.T) {
	for _, tt := range []struct {
		name string
		sync string
		do   func(*jetstream.StreamConfig)
		want DurabilityClass
	}{
		{"always", "always", nil, ClassFsync},
		{"default of NATS", "2m", nil, ClassInterval},
		{"memory", "always", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, ClassMemory},
		{"async persist", "always", func(c *jetstream.StreamConfig) {
			c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false
		}, ClassInterval},
		{"no acknowledgement", "always", func(c *jetstream.StreamConfig) { c.NoAck, c.AllowAtomicPublish = true, false }, ClassInterval},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.SyncInterval = tt.sync
			srv, err := startServer(t, cfg)
			ok(t, err)
			t.Cleanup(srv.Shutdown)
			f := &fixture{tb: t, cfg: cfg, srv: srv}
			shard := Shard{}.streamConfigs()[0]
			if tt.do != nil {
				tt.do(&shard)
			}
			_, err = f.js(f.conn("provisioner")).CreateStream(ctx(t), shard)
			ok(t, err)
			for _, user := range []string{"admitter", "correlator", "auditor", "operator", "provisioner"} {
				class, detail, err := Durability(ctx(t), f.conn(user), DefaultShard)
				if err != nil || class != tt.want || detail == "" {
					t.Errorf("%s: %s, %q, %v; want %s", user, class, detail, err, tt.want)
				}
			}
		})
	}
}

func TestClassify(t *testing.T) {
	always, now := syncSetting{Always: true}, syncSetting{Interval: time.Minute}
	for _, tt := range []struct {
		name    string
		holders []string
		offline []string // more holders, which the leader knows to be away
		syncs   map[string]syncSetting
		want    DurabilityClass
		away    string // of an AwayError; "unknown": another error
	}{
		{"three, always", []string{"a", "b", "c"}, nil, map[string]syncSetting{"a": always, "b": always, "c": always}, ClassFsync, ""},
		{"three, one not", []string{"a", "b", "c"}, nil, map[string]syncSetting{"a": always, "b": now, "c": always}, ClassReplicated, ""},
		{"three, one away", []string{"a", "b"}, []string{"c"}, map[string]syncSetting{"a": always, "b": always}, ClassFsync, "c"},
		{"three, one away, one not", []string{"a", "b"}, []string{"c"}, map[string]syncSetting{"a": always, "b": now}, ClassReplicated, "c"},
		{"three, one silent", []string{"a", "b", "c"}, nil, map[string]syncSetting{"a": always, "b": always}, ClassReplicated, "c"},
		{"three, one left", []string{"a", "b"}, []string{"c"}, map[string]syncSetting{"a": always}, ClassReplicated, "c b"},
		{"three, none answers", []string{"a", "b"}, []string{"c"}, nil, ClassReplicated, "unknown"},
		{"others do not count", []string{"a"}, nil, map[string]syncSetting{"a": always, "x": now}, ClassFsync, ""},
		{"one silent", []string{"a"}, nil, map[string]syncSetting{"x": always}, ClassInterval, "unknown"},
	} {
		class, _, err := durabilityClass(tt.holders, tt.offline, tt.syncs, nil)
		got := ""
		if e := (*AwayError)(nil); errors.As(err, &e) {
			got = strings.Join(e.Away, " ")
		} else if err != nil {
			got = "unknown"
		}
		if class != tt.want || got != tt.away {
			t.Errorf("%s: %s %v", tt.name, class, err)
		}
	}
}

// TestStreamHolders: what a stream's leader says of the servers that hold it.
func TestStreamHolders(t *testing.T) {
	led := &jetstream.StreamInfo{Cluster: &jetstream.ClusterInfo{Leader: "b", Replicas: []*jetstream.PeerInfo{{Name: "a", Current: true}, {Name: "c", Offline: true}}}}
	if holders, away, err := streamHolders(nil, led); err != nil || !slices.Equal(holders, []string{"a", "b"}) || !slices.Equal(away, []string{"c"}) {
		t.Errorf("%q, away %q, %v", holders, away, err)
	}
	led.Cluster.Leader = ""
	if _, _, err := streamHolders(nil, led); !Transient(err) {
		t.Errorf("without a leader: %v", err)
	}
}

// A server does not export its settings: the class is the weakest, and the error says why.
func TestDurabilityUnknown(t *testing.T) {
	f := flatServer(t, `{ user: x, password: pw-x }`)
	class, _, err := Durability(ctx(t), f.conn("provisioner"), DefaultShard)
	if class != ClassInterval || err == nil || !strings.Contains(err.Error(), "system account") {
		t.Errorf("%s %v", class, err)
	}
}

// TestDecidedIsForgotten: each workflow and each used confirmation is a key of its own, so these buckets would
// grow for ever.
func TestDecidedIsForgotten(t *testing.T) {
	for _, s := range (Shard{}).streamConfigs() {
		bucket, ofBucket := strings.CutPrefix(s.Name, "KV_")
		forgets := bucket == BucketApprovals || bucket == BucketConfirmed
		if ofBucket && (s.MaxAge != 0) != forgets || forgets && s.MaxAge < 2*24*time.Hour {
			t.Errorf("%s keeps a revision for %v", s.Name, s.MaxAge)
		}
	}
}

// TestBucketsOfBeforeServe: a shard whose buckets forget nothing is provisioned as it is; an age that is too short is
// a difference.
func TestBucketsOfBeforeServe(t *testing.T) {
	for age, fields := range map[time.Duration]int{0: 0, time.Hour: 1} {
		want := Shard{}.bucketConfig(bucketSpec{BucketApprovals, kvHistory, decidedAge})
		have := want
		have.MaxAge = age
		if got := (Shard{}).compareConfig(have, want); len(got) != fields {
			t.Errorf("a bucket that keeps a revision for %v: %v", age, got)
		}
	}
	quarantine := Shard{}.streamConfigs()[1]
	have := quarantine
	have.MaxAge = 0
	if got := (Shard{}).compareConfig(have, quarantine); len(got) != 1 {
		t.Errorf("a quarantine that keeps all for ever: %v", got)
	}
}

// TestOpenBucketWithDirectGet: a service refuses a bucket that any replica answers for.
func TestOpenBucketWithDirectGet(t *testing.T) {
	cfg := testConfig(t)
	srv, err := startServer(t, cfg)
	ok(t, err)
	t.Cleanup(srv.Shutdown)
	f := &fixture{tb: t, cfg: cfg, srv: srv}
	c := Shard{}.bucketConfig(bucketSpec{BucketKeys, kvHistory, 0})
	c.AllowDirect = true
	_, err = f.js(f.conn("provisioner")).CreateStream(ctx(t), c)
	ok(t, err)
	if _, err := OpenBucket(ctx(t), f.js(f.conn("admitter")), BucketKeys); !errors.Is(err, ErrDirectGet) || !strings.Contains(err.Error(), "countersign provision") {
		t.Errorf("%v", err)
	}
}

// TestClassProblem: only what is synced before the acknowledgement is safe without
// a word of the operator.
func TestClassProblem(t *testing.T) {
	for _, tt := range []struct {
		class         DurabilityClass
		separatePower bool
		want          string // what the problem must say; empty: there is none
	}{
		{ClassFsync, false, ""},
		{ClassFsync, true, ""},
		{ClassReplicated, false, "--accept-replicated"},
		{ClassReplicated, true, ""},
		{ClassInterval, false, "sync_interval: always"},
		{ClassInterval, true, "sync_interval: always"},
		{ClassMemory, true, "lost with the server process"},
		{DurabilityClass("other"), true, "other"},
	} {
		got := tt.class.LossRisk("three servers", tt.separatePower)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || got != "" && !strings.Contains(got, "three servers") {
			t.Errorf("%s, %t: %q", tt.class, tt.separatePower, got)
		}
	}
}

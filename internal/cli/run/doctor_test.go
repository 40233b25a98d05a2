package run

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/cli/ui/uitest"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/streams"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func asRuntime(url, user string) *target.Target {
	return target.FromReady(target.Ready{NATSURL: url, Tenant: servicetest.Tenant, Roles: map[string]target.Role{
		target.Runtime: {User: user, Password: "pw-" + user}, target.Subscriber: {User: "subscriber", Password: "pw-subscriber"},
	}})
}

func TestDoctorTriesPermissionsOut(t *testing.T) {
	examine := func(tgt *target.Target) examined {
		return doctor{Operator: system.Operator{Target: tgt}}.permissions(t.Context())[0]
	}
	n := servicetest.Start(t, streams.Shard{})
	if got := examine(asRuntime(n.URL(), servicetest.Runtime)); got.Level != levelOK {
		t.Errorf("as it should be: %+v", got)
	}
	flat := flatServer(t)
	got := examine(asRuntime(flat, servicetest.Runtime))
	if got.Level != levelUnsafe || !strings.Contains(got.Detail, "has JetStream and can listen for admission requests") || strings.Contains(got.Detail, "pw-") {
		t.Errorf("a server without permissions: %+v", got)
	}
	if got := examine(&target.Target{}); got.Level != levelWarn {
		t.Errorf("without a runtime's credentials: %+v", got)
	}
	if got := examine(asRuntime("nats://127.0.0.1:1", servicetest.Runtime)); got.Level != levelUnsafe {
		t.Errorf("no server: %+v", got)
	}
}

// flatServer is an unsafe server: every user may do everything.
func flatServer(t *testing.T) (url string) {
	t.Helper()
	opts := &natsd.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*natsd.User{{Username: servicetest.Runtime, Password: "pw-" + servicetest.Runtime}}}
	s, err := natsd.NewServer(opts)
	servicetest.OK(t, err)
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(servicetest.Guard) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// A tail by a user without permission to subscribe must report that and not wait for ever.
func TestTailOfWhoMayNot(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	ctx, cancel := context.WithTimeout(t.Context(), servicetest.Guard)
	defer cancel()
	nc := n.Conn(servicetest.Runtime)
	err := client.Follow(ctx, nc, client.FollowOptions{Tenant: servicetest.Tenant}, nil)
	if err == nil || !strings.Contains(err.Error(), "subscriber's credentials") {
		t.Errorf("error %v", err)
	}
}

func TestUpConfig(t *testing.T) {
	path := t.TempDir() + "/up.yaml"
	write(t, path, "tenant: globex\nnats-port: 4242\ngateway-port: 4243\nlog-level: debug\ndata-dir: "+t.TempDir()+"\n")
	c := &UpCmd{Config: path, LogLevel: "warn"}
	servicetest.OK(t, c.settle())
	if c.Tenant != "globex" || c.NATSPort != 4242 || c.GatewayPort != 4243 || c.LogLevel != "warn" || c.SyncInterval != "always" || c.Host != "127.0.0.1" {
		t.Errorf("%+v", c)
	}
	write(t, path, "")
	c = &UpCmd{Config: path, DataDir: "relative"}
	servicetest.OK(t, c.settle())
	if !strings.HasPrefix(c.DataDir, "/") {
		t.Errorf("data directory %s", c.DataDir)
	}
	for _, text := range []string{"tenant: [", "tenants: x", "mode: observe", "config: other.yaml", "{}x", "tenant: a\n---\ntenant: b\n", "tenant: '../x'", "sync-interval: never", "clickhouse: http://127.0.0.1:8123", "clickhouse: clickhouse://127.0.0.1:9000/a-b"} {
		write(t, path, text)
		if err := (&UpCmd{Config: path}).settle(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A ready file that cannot be written ends `up` before anything runs.
func TestUpWithoutAPlaceForItsReadyFile(t *testing.T) {
	dir := t.TempDir()
	c := &UpCmd{DataDir: filepath.Join(dir, "data"), ReadyFile: filepath.Join(dir, "no", "ready.json")}
	if err := c.Run(t.Context(), ui.Stdio{}); err == nil || !strings.Contains(err.Error(), "ready file") {
		t.Error(err)
	}
	if made, err := os.ReadDir(c.DataDir); err != nil || len(made) > 0 {
		t.Errorf("something was begun: %v, %v", made, err)
	}
}

// The ready file may lie in the data directory, also at the first start, which makes that directory.
func TestUpWithItsReadyFileInTheDataDirectory(t *testing.T) {
	data := filepath.Join(t.TempDir(), "new", "data")
	c := &UpCmd{DataDir: data, ReadyFile: filepath.Join(data, "ready.json"), ClickHouse: "clickhouse://127.0.0.1:1"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it goes on until the first part is waited for
	if err := c.Run(ctx, ui.Stdio{}); err != nil {
		t.Errorf("a stop during the start: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	servicetest.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestDoctorKnowsTheEvidenceOfALostLog: the log is gone and its evidence is there. A new log is then not what
// the operator is told to make.
func TestDoctorKnowsTheEvidenceOfALostLog(t *testing.T) {
	servicetest.OK(t, enginetest.Pool(t).Exec(t.Context(), "INSERT INTO evidence (shard, seq) VALUES ('GOV@20261120T090000.000000000Z', 1)"))
	nc, err := nats.Connect(flatServer(t), nats.UserInfo(servicetest.Runtime, "pw-"+servicetest.Runtime))
	servicetest.OK(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	servicetest.OK(t, err)
	for dsn, want := range map[string]string{
		enginetest.Engine(t).DSN(): "evidence of it up to sequence 1 (shard GOV@20261120T090000.000000000Z): the NATS store was lost",
		"":                         "only for a new log",
	} {
		d := doctor{Operator: system.Operator{JS: js, Target: &target.Target{Flags: target.Flags{Stream: "GOV", ClickHouse: dsn}}}}
		if got := d.stream(t.Context()); len(got) != 1 || got[0].Level != levelUnsafe || !strings.Contains(got[0].Detail, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// TestDoctorNamesTheStreamThatIsThere: the server holds another shard. The operator
// may not ask about this one, and nothing would ever answer.
func TestDoctorNamesTheStreamThatIsThere(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{Name: "EAST"})
	var out bytes.Buffer
	c := &DoctorCmd{Flags: target.Flags{Server: n.URL(), User: "operator", Password: "pw-operator", Tenant: servicetest.Tenant, Prefix: "gov", Stream: "GOV"}, Timeout: servicetest.Guard}
	err := c.Run(t.Context(), ui.Stdio{Out: &out, Err: &out})
	if got := out.String(); err == nil || !strings.Contains(got, "stream GOV is not on this server; it has EAST") || !strings.Contains(got, "--stream") || strings.Count(got, "\n") != 1 {
		t.Errorf("%v: %s", err, got)
	}
}

// TestDoctorWaitsForNoAnswerForEver: a check that gets no answer is a finding.
func TestDoctorWaitsForNoAnswerForEver(t *testing.T) {
	hangs := func(context.Context) []examined { select {} }
	if got := limited(t.Context(), time.Millisecond, "keys", hangs); len(got) != 1 || got[0].Check != "keys" || got[0].Level != levelUnsafe || !strings.Contains(got[0].Detail, "1ms") {
		t.Errorf("%+v", got)
	}
	ends := func(ctx context.Context) []examined { <-ctx.Done(); return one("keys", levelUnsafe, "%v", ctx.Err()) }
	if got := limited(t.Context(), time.Millisecond, "keys", ends); len(got) != 1 || !strings.Contains(got[0].Detail, "deadline") {
		t.Errorf("%+v", got)
	}
}

// TestDoctorComparesSettings: settings that Provision would not make are found.
func TestDoctorComparesSettings(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shard streams.Shard
		level string
		says  string
	}{
		{"as provisioned", streams.Shard{}, levelOK, ""},
		{"another age", streams.Shard{QuarantineAge: time.Hour}, levelUnsafe, streams.StreamQuarantine + ": max_age is 1h0m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := servicetest.Start(t, tt.shard)
			o := system.Operator{Target: &target.Target{Flags: target.Flags{Stream: "GOV", Prefix: "gov"}}, JS: n.JS("operator")}
			if got := (doctor{Operator: o}).settings(t.Context()); got[0].Level != tt.level || !strings.Contains(got[0].Detail, tt.says) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestDoctorIsHarmless(t *testing.T) {
	var out bytes.Buffer
	_ = (&DoctorCmd{}).report(ui.Stdio{Out: &out}, one("c", levelOK, "%s", uitest.Hostile))
	uitest.Harmless(t, out.String(), 1)
}

// A gateway that does not answer, or cannot, is a warning; so is a token that ends within a week.
func TestDoctorChecksTheGateway(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	if got := checkReady(t.Context(), s.URL)[0]; got.Level != levelOK {
		t.Errorf("a gateway that answers: %+v", got)
	}
	status = http.StatusServiceUnavailable
	if got := checkReady(t.Context(), s.URL)[0]; got.Level != levelWarn || !strings.Contains(got.Detail, "503") {
		t.Errorf("a gateway without an admitter: %+v", got)
	}
	s.Close()
	if got := checkReady(t.Context(), s.URL)[0]; got.Level != levelWarn || !strings.Contains(got.Detail, "no answer") {
		t.Errorf("no gateway: %+v", got)
	}

	now := time.Now()
	record := func(ends time.Duration, revoked bool) []byte {
		r := token.Record{Hash: token.Hash("x"), Tenant: "acme", User: "rt1", Role: "runtime", CreatedAt: now, ExpiresAt: now.Add(ends)}
		if revoked {
			r.RevokedAt = &now
		}
		text, err := json.Marshal(r)
		servicetest.OK(t, err)
		return text
	}
	list := checkTokens(map[string][]byte{"soon": record(24*time.Hour, false), "later": record(30*24*time.Hour, false), "ended": record(-time.Hour, false), "revoked": record(time.Hour, true), "none": []byte("x")}, now)
	if len(list) != 1 || !strings.Contains(list[0].Detail, "soon") || list[0].Level != levelWarn {
		t.Errorf("tokens: %+v", list)
	}
}

// Of an erasure that takes long, doctor says how far it is; of one that nothing is gone of, what to look at.
func TestDoctorSaysHowFarAnErasureIs(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	_, public, err := keys.Checkpoint(n.Keys)
	servicetest.OK(t, err)
	tgt := target.FromReady(target.Ready{Tenant: servicetest.Tenant, PublicKey: public})
	d := doctor{Operator: system.Operator{Target: tgt, Tenant: servicetest.Tenant, JS: n.JS("operator")}}
	order := func(s retention.State, err error) {
		t.Helper()
		servicetest.OK(t, err)
		text, err := s.Encode()
		servicetest.OK(t, err)
		kv, err := d.JS.KeyValue(t.Context(), streams.BucketRetention)
		servicetest.OK(t, err)
		_, err = kv.Put(t.Context(), retention.StateKey(servicetest.Tenant), text)
		servicetest.OK(t, err)
	}
	says := func(want string) {
		t.Helper()
		if got := d.retention(t.Context())[0]; got.Level != levelWarn || !strings.HasSuffix(got.Detail, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	asked := retention.Note{ID: "e1", By: "dana", Reason: "r", At: events.At(time.Now())}
	order(retention.State{V: 1}.RequestErasure(retention.Order{Scope: retention.Scope{Session: "s1"}, Note: asked}))
	for range 3 {
		n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte("{")})
	}
	n.PublishErasure(events.Erasure{ErasureID: "e1", State: events.ErasureBegun, Sessions: []string{"s1"}, Sequences: []events.Span{{1, 3}}})
	says("does the correlator run?")
	for _, seq := range []uint64{1, 3} {
		_, err := streams.Erase(t.Context(), n.Conn("custodian"), streams.DefaultShard, seq)
		servicetest.OK(t, err)
	}
	says("2 of 3 messages are gone so far")
}

// The evidence may be behind the log, but not behind what was signed of it.
func TestDoctorComparesTheEvidence(t *testing.T) {
	for name, tc := range map[string]struct {
		position, last, published uint64
		level, says               string
	}{
		"all is stored":            {245, 245, 241, levelOK, "245 of 245 messages audited"},
		"some is not yet":          {241, 245, 241, levelOK, "241 of 245 messages audited"},
		"nothing is signed yet":    {0, 3, 0, levelOK, "0 of 3 messages audited"},
		"what was signed is gone":  {240, 245, 241, levelUnsafe, "a checkpoint of 241 records was published, and the evidence ends at 240"},
		"all of it is gone":        {0, 245, 241, levelUnsafe, "the evidence ends at 0"},
		"far behind":               {1, 20_000, 1, levelWarn, "19999 messages behind"},
		"the log is behind itself": {245, 200, 241, levelUnsafe, "acknowledged messages are gone"},
	} {
		if got := compareEvidence("GOV@now", tc.position, tc.last, tc.published); len(got) != 1 || got[0].Level != tc.level || !strings.Contains(got[0].Detail, tc.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A record that was late is not taken for a wrong clock, as far as it may be late.
func TestCompareClocks(t *testing.T) {
	for skew, want := range map[time.Duration]string{
		-3 * time.Second: levelUnsafe, -time.Second: levelOK, 0: levelOK, 1900 * time.Millisecond: levelOK,
		2100 * time.Millisecond: levelWarn, 6 * time.Second: levelWarn, 7 * time.Second: levelUnsafe, 3 * time.Hour: levelUnsafe,
	} {
		if got := compareClocks(skew); got[0].Level != want {
			t.Errorf("%v: %+v, want %s", skew, got, want)
		}
	}
}

package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/owner"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// limitedServer is a configuration of one's own with a limit on what the server stores.
const limitedServer = `
host: "127.0.0.1", port: -1, server_name: "small", system_account: "SYS"
jetstream { store_dir: %q, sync_interval: "always", max_file_store: 65536 }
accounts {
  SYS { exports: [ { service: "$SYS.REQ.SERVER.PING.JSZ", response_type: stream } ] }
  OWN {
    jetstream: enabled, users: [ { user: "own", password: "pw-own" } ]
    imports: [ { service: { account: "SYS", subject: "$SYS.REQ.SERVER.PING.JSZ" } } ]
  }
}
`

// TestDoctorNamesALimitOfTheStore: a server that stores as much as its max_file_store refuses everything,
// with room on its disk.
func TestDoctorNamesALimitOfTheStore(t *testing.T) {
	servicetest.SkipShort(t)
	srv, err := embedded.Start(t.Context(), fmt.Appendf(nil, limitedServer, t.TempDir()), zerolog.Nop())
	servicetest.OK(t, err)
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo("own", "pw-own"))
	servicetest.OK(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	servicetest.OK(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streams.DefaultShard, Subjects: []string{"e"}, Storage: jetstream.FileStorage})
	servicetest.OK(t, err)
	examine := func() []examined {
		o := system.Operator{Target: &target.Target{Flags: target.Flags{Stream: streams.DefaultShard}}, Conn: nc}
		return doctor{Operator: o}.durability(t.Context())
	}
	if got := examine(); len(got) != 1 || got[0].Level != levelOK {
		t.Errorf("with room: %+v", got)
	}
	_, err = js.Publish(t.Context(), "e", make([]byte, 65536))
	servicetest.OK(t, err)
	if _, err := js.Publish(t.Context(), "e", nil); err == nil || !strings.Contains(err.Error(), "10023") {
		t.Errorf("beyond its limit: %v", err)
	}
	if got := examine(); !slices.ContainsFunc(got, func(e examined) bool {
		return e.Level == levelUnsafe && strings.Contains(e.Detail, "small stores 0 MiB and refuses everything") && strings.Contains(e.Detail, "max_file_store")
	}) {
		t.Errorf("at its limit: %+v", got)
	}
}

func TestCheckDisk(t *testing.T) {
	const small, large = 1000, 4 << 20
	for _, tc := range []struct {
		free, size uint64 // MiB
		want       string
	}{
		{0, small, levelUnsafe}, {19, small, levelUnsafe}, {20, small, levelWarn}, {99, small, levelWarn}, {100, small, levelOK}, {1000, small, levelOK},
		{1023, large, levelUnsafe}, {1024, large, levelWarn},
	} {
		if got := checkDisk("/data", tc.free<<20, tc.size<<20); got[0].Level != tc.want {
			t.Errorf("%d of %d MiB free: %+v, want %s", tc.free, tc.size, got, tc.want)
		}
	}
}

// The disk of an `up` of this machine is looked at; where other servers have theirs is not known.
func TestDoctorLooksAtTheDiskOfUp(t *testing.T) {
	for name, tc := range map[string]struct {
		ready *target.Ready
		want  int
	}{
		"up":                    {&target.Ready{DataDir: t.TempDir(), Owner: owner.ThisProcess()}, 1},
		"up of another machine": {&target.Ready{DataDir: t.TempDir(), Owner: &owner.Owner{PID: 1, Started: "1", Machine: "other"}}, 0},
		"servers of one's own":  {nil, 0},
	} {
		if got := disk(tc.ready); len(got) != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDoctorSaysWhatUpKnows: the problems that up reports are printed although NATS does not answer.
func TestDoctorSaysWhatUpKnows(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"status":"unhealthy","problems":{"nats/process":"input/output error","admitter/policies":"no policy"}}`))
	}))
	defer up.Close()
	got := services(t.Context(), &target.Ready{HTTPURL: up.URL, Owner: owner.ThisProcess()})
	want := []examined{{"services", levelWarn, "admitter/policies: no policy"}, {"services", levelUnsafe, "nats/process: input/output error"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := services(t.Context(), &target.Ready{HTTPURL: up.URL, Owner: &owner.Owner{PID: 1, Started: "1", Machine: "other"}}); got != nil {
		t.Errorf("up of another machine: %+v", got)
	}
}

// A full disk stops NATS: the disk is looked at although there is no answer.
func TestDoctorLooksAtTheDiskWithoutNATS(t *testing.T) {
	dir := t.TempDir()
	text, err := json.Marshal(target.Ready{DataDir: dir, Owner: owner.ThisProcess(), NATSURL: "nats://127.0.0.1:1", Tenant: servicetest.Tenant,
		Roles: map[string]target.Role{target.Operator: {User: "operator", Password: "pw-operator"}}})
	servicetest.OK(t, err)
	file := filepath.Join(dir, "ready.json")
	write(t, file, string(text))
	var out bytes.Buffer
	c := &DoctorCmd{Flags: target.Flags{ReadyFile: file}, Timeout: servicetest.Guard}
	if err := c.Run(t.Context(), ui.Stdio{Out: &out, Err: &out}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(out.String(), "disk ") || !strings.Contains(out.String(), dir) {
		t.Errorf("%v: %s", err, &out)
	}
}

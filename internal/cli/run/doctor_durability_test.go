package run

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
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

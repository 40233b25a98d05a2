package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// Users that are added by a reload are served at once, also those of a new tenant. Users that are connected
// stay so, with their subscriptions, and their requests arrive; the log is still synced always.
func TestReloadAddsUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	user := func(name string, r streams.Role) streams.User {
		return streams.User{Name: name, Password: "pw-" + name, Role: r}
	}
	c := streams.ServerConfig{
		Port: -1, StoreDir: t.TempDir(), SyncInterval: "always",
		Services: []streams.User{user("admitter", streams.RoleAdmitter), user("operator", streams.RoleOperator)},
		Tenants:  []streams.Tenant{{Name: "acme", Users: []streams.User{user("rt1", streams.RoleRuntime), user("dana", streams.RoleReviewer)}}},
	}
	render := func() []byte {
		t.Helper()
		text, err := c.Render()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	srv, err := embedded.Start(context.Background(), render(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	connect := func(name string) *nats.Conn {
		t.Helper()
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(name, "pw-"+name), nats.CustomInboxPrefix("_INBOX_"+name), nats.NoReconnect())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	service := connect("admitter")
	for _, subj := range []string{"gov.admit.>", "gov.resolve.>", "gov.ingest.>"} {
		if _, err := service.Subscribe(subj, func(m *nats.Msg) { _ = m.Respond([]byte(m.Subject + " " + m.Header.Get("Nats-Request-Info"))) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := service.Flush(); err != nil {
		t.Fatal(err)
	}
	asks := func(nc *nats.Conn, subj string) {
		t.Helper()
		if _, err := nc.Request(subj, nil, 10*time.Second); err != nil {
			t.Errorf("%s: %v", subj, err)
		}
	}
	before := connect("rt1")
	asks(before, "gov.admit.acme.aana")
	c.Tenants[0].Users = append(c.Tenants[0].Users, user("erin", streams.RoleReviewer))
	c.Tenants = append(c.Tenants, streams.Tenant{Name: "globex", Users: []streams.User{user("mallory", streams.RoleRuntime), user("gus", streams.RoleReviewer)}})
	if err := srv.Reload(render()); err != nil {
		t.Fatal(err)
	}
	asks(before, "gov.admit.acme.aana")
	asks(connect("erin"), "gov.resolve.acme")
	asks(connect("gus"), "gov.resolve.globex")
	mallory := connect("mallory")
	asks(mallory, "gov.admit.globex.aana")
	asks(mallory, "gov.events.globex.mallory.aana.s.x")
	if _, err := mallory.Request("gov.admit.acme.aana", nil, time.Second); err == nil {
		t.Error("a user of the new tenant asks for the other one")
	}
	if !before.IsConnected() || !service.IsConnected() {
		t.Error("a connection ended")
	}
	if err := srv.Reload([]byte("port: [")); err == nil {
		t.Error("a configuration that cannot be read was put in force")
	}
	asks(connect("gus"), "gov.resolve.globex")
}

// A user that is taken out by a reload is disconnected, and its password lets nobody in; a user of the same name
// that is added later has its own. The others stay connected, and their requests arrive.
func TestReloadRemovesUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	user := func(name, password string, r streams.Role) streams.User {
		return streams.User{Name: name, Password: password, Role: r}
	}
	stays, leaves := user("rt1", "pw-rt1", streams.RoleRuntime), user("dana", "pw-dana", streams.RoleReviewer)
	c := streams.ServerConfig{
		Port: -1, StoreDir: t.TempDir(), SyncInterval: "always", Services: []streams.User{user("admitter", "pw-admitter", streams.RoleAdmitter)},
		Tenants: []streams.Tenant{{Name: "acme", Users: []streams.User{stays, leaves}}, {Name: "globex", Users: []streams.User{user("gus", "pw-gus", streams.RoleRuntime)}}},
	}
	render := func() []byte {
		t.Helper()
		text, err := c.Render()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	srv, err := embedded.Start(context.Background(), render(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	connect := func(name, password string) (*nats.Conn, error) {
		return nats.Connect(srv.ClientURL(), nats.UserInfo(name, password), nats.CustomInboxPrefix("_INBOX_"+name), nats.NoReconnect())
	}
	conns := map[string]*nats.Conn{}
	for _, name := range []string{"admitter", "rt1", "dana", "gus"} {
		if conns[name], err = connect(name, "pw-"+name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[name].Close)
	}
	for _, subj := range []string{"gov.admit.>", "gov.resolve.>"} {
		if _, err := conns["admitter"].Subscribe(subj, func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := conns["admitter"].Flush(); err != nil {
		t.Fatal(err)
	}
	closed := map[string]<-chan nats.Status{"dana": conns["dana"].StatusChanged(nats.CLOSED), "gus": conns["gus"].StatusChanged(nats.CLOSED)}
	c.Tenants = []streams.Tenant{{Name: "acme", Users: []streams.User{stays}}}
	if err := srv.Reload(render()); err != nil {
		t.Fatal(err)
	}
	for name, ended := range closed {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("%s is still connected", name)
		}
		if nc, err := connect(name, "pw-"+name); err == nil {
			nc.Close()
			t.Errorf("%s connects again", name)
		}
	}
	if _, err := conns["rt1"].Request("gov.admit.acme.aana", nil, 10*time.Second); err != nil {
		t.Error(err)
	}
	c.Tenants[0].Users = append(c.Tenants[0].Users, user("dana", "another", streams.RoleReviewer))
	if err := srv.Reload(render()); err != nil {
		t.Fatal(err)
	}
	if nc, err := connect("dana", "pw-dana"); err == nil {
		nc.Close()
		t.Error("the old password counts for the new user")
	}
	again, err := connect("dana", "another")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Request("gov.resolve.acme", nil, 10*time.Second); err != nil {
		t.Error(err)
	}
	if !conns["rt1"].IsConnected() || !conns["admitter"].IsConnected() {
		t.Error("a connection of another user ended")
	}
}

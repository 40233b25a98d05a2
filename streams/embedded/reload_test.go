package embedded_test

import (
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
	srv, err := embedded.Start(render(), zerolog.Nop())
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

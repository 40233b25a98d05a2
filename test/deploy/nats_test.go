package deploy_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/streams"
)

const natsConf = "deploy/nats/nats-server.conf"

// natsHeader stands above what streams.ServerConfig renders.
const natsHeader = `# nats-server configuration of Countersign: one server, one tenant (acme).
#
#   nats-server -c nats-server.conf
#
# Passwords come from the environment of the server process, by the names
# below. A password must not be digits only, and begins best with a letter.
# Accounts and permissions are those of package streams (docs/architecture.md
# says why they are so); do not loosen them. Another tenant is another set of
# every line and block that names acme.
#
# Written by: UPDATE=1 go test ./test/deploy -run TestNATSConfigIsCurrent
`

// natsServer is the server that the file describes.
func natsServer(tenants ...string) streams.ServerConfig {
	user := func(name string, r streams.Role) streams.User {
		return streams.User{Name: name, Role: r, Password: "$" + passwordVar(name)}
	}
	c := streams.ServerConfig{Port: 4222, StoreDir: "/var/lib/countersign-nats"}
	for _, r := range []streams.Role{streams.RoleProvisioner, streams.RoleAdmitter, streams.RoleCorrelator, streams.RoleAuditor, streams.RoleCustodian, streams.RoleOperator, streams.RoleWitness} {
		c.Services = append(c.Services, user(string(r), r))
	}
	for _, name := range tenants {
		t := streams.Tenant{Name: name}
		for _, r := range []streams.Role{streams.RoleRuntime, streams.RoleSubscriber, streams.RoleReviewer, streams.RoleGateway} {
			t.Users = append(t.Users, user(name+"-"+string(r), r))
		}
		c.Tenants = append(c.Tenants, t)
	}
	return c
}

func passwordVar(user string) string {
	return "COUNTERSIGN_PW_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_"))
}

func TestNATSConfigIsCurrent(t *testing.T) {
	rendered, err := natsServer("acme").Render()
	ok(t, err)
	want := natsHeader + "\n" + string(rendered)
	if os.Getenv("UPDATE") != "" {
		ok(t, os.WriteFile(path(natsConf), []byte(want), 0o644))
	}
	if got := read(t, natsConf); got != want {
		t.Errorf("%s is not what package streams renders; update it with: UPDATE=1 go test ./test/deploy -run TestNATSConfigIsCurrent", natsConf)
	}
}

// TestNATSConfigSecondTenant holds the advice in the file and in
// docs/operating.md: another tenant is a copy of what names the first one.
func TestNATSConfigSecondTenant(t *testing.T) {
	one, err := natsServer("acme").Render()
	ok(t, err)
	two, err := natsServer("acme", "globex").Render()
	ok(t, err)
	rename := strings.NewReplacer("acme", "globex", "ACME", "GLOBEX")
	count := func(text string) map[string]int {
		lines := map[string]int{}
		for _, l := range strings.Split(text, "\n") {
			lines[l]++
		}
		return lines
	}
	added, was := count(string(two)), count(string(one))
	for l, n := range was {
		if added[l] -= n; added[l] < 0 {
			t.Errorf("a second tenant takes away the line %s", l)
		}
	}
	for l, n := range added {
		if strings.Contains(strings.ToLower(l), "globex") && was[strings.NewReplacer("globex", "acme", "GLOBEX", "ACME").Replace(l)] != n {
			t.Errorf("no line of the first tenant corresponds to %s", l)
		}
	}
	for l, n := range was {
		if strings.Contains(strings.ToLower(l), "acme") && added[rename.Replace(l)] != n {
			t.Errorf("the second tenant lacks %s", rename.Replace(l))
		}
	}
}

var envReference = regexp.MustCompile(`password: \$([A-Z0-9_]+)`)

// setPasswords gives every password variable of a configuration a value.
func setPasswords(t *testing.T, text string) {
	t.Helper()
	found := envReference.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatal("the configuration names no password")
	}
	for _, m := range found {
		t.Setenv(m[1], "pw-"+m[1])
	}
}

// boot runs the file with another port and folder.
func boot(t *testing.T, file string, change func(*natsd.Options)) *natsd.Server {
	t.Helper()
	opts, err := natsd.ProcessConfigFile(path(file))
	ok(t, err)
	opts.Port, opts.StoreDir, opts.NoSigs, opts.NoLog = -1, t.TempDir(), true, true
	if change != nil {
		change(opts)
	}
	srv, err := natsd.NewServer(opts)
	ok(t, err)
	go srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not accept connections")
	}
	return srv
}

func connect(t *testing.T, srv *natsd.Server, user string) *nats.Conn {
	t.Helper()
	nc, err := streams.Connect(t.Context(), streams.ConnectOptions{
		URL: srv.ClientURL(), User: user, Password: "pw-" + passwordVar(user), Name: t.Name(), Log: zerolog.Nop(),
	})
	ok(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func jet(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	ok(t, err)
	return js
}

func TestNATSConfigWorks(t *testing.T) {
	setPasswords(t, read(t, natsConf))
	srv := boot(t, natsConf, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	report, err := streams.Provision(ctx, jet(t, connect(t, srv, "provisioner")), streams.Shard{})
	ok(t, err)
	if len(report.Created) == 0 {
		t.Fatal("nothing was provisioned")
	}
	admitter, runtime := connect(t, srv, "admitter"), connect(t, srv, "acme-runtime")

	t.Run("durability", func(t *testing.T) {
		class, detail, err := streams.Durability(ctx, admitter, streams.DefaultShard)
		ok(t, err)
		if class != streams.ClassFsync {
			t.Errorf("an acknowledgement is worth %s (%s), want fsync", class, detail)
		}
	})
	t.Run("admission crosses accounts with its identity", func(t *testing.T) {
		_, err := admitter.Subscribe("gov.admit.>", func(m *nats.Msg) {
			id, err := streams.RequestIdentity(m.Header)
			if err != nil {
				_ = m.Respond([]byte(err.Error()))
				return
			}
			_ = m.Respond([]byte(id.Account + "/" + id.User))
		})
		ok(t, err)
		ok(t, admitter.Flush())
		reply, err := runtime.RequestWithContext(ctx, "gov.admit.acme.agenthook", []byte("{}"))
		ok(t, err)
		if got, want := string(reply.Data), "tenant-acme:acme-runtime/acme-runtime"; got != want {
			t.Errorf("the admitter sees %q, want %q", got, want)
		}
	})
	t.Run("events reach the service that takes them in, and nothing else", func(t *testing.T) {
		_, err := admitter.Subscribe("gov.ingest.>", func(m *nats.Msg) {
			if id, err := streams.RequestIdentity(m.Header); err != nil || !id.IsOfTenant("acme") || id.User != "acme-runtime" {
				t.Errorf("%+v, %v", id, err)
			}
			ok(t, streams.StoreAll(ctx, admitter, []streams.Msg{{Subject: strings.Replace(m.Subject, ".ingest.", ".events.", 1), Body: m.Data}}))
			ok(t, m.Respond([]byte(`{"stream":"GOV","seq":1}`)))
		})
		ok(t, err)
		ok(t, admitter.Flush())
		ok(t, streams.PublishEvents(ctx, runtime, []streams.Msg{{Subject: "gov.events.acme.acme-runtime.aaep.s1.agent.tool.invoked", Body: []byte("{}")}}))
	})
	for name, subj := range map[string]string{
		"a decision":          "gov.decisions.acme.allow.s1",
		"a request copy":      "gov.events.acme.acme-runtime.aaep.s1.request",
		"another's event":     "gov.events.acme.somebody.aaep.s1.x",
		"another tenant's":    "gov.events.globex.acme-runtime.aaep.s1.x",
		"a policy":            "$KV.policies.mine",
		"the JetStream API":   "$JS.API.STREAM.DELETE.GOV",
		"a checkpoint of its": "gov.checkpoints.GOV",
	} {
		t.Run("a runtime cannot write "+name, func(t *testing.T) { refused(t, runtime, subj) })
	}
	t.Run("a gateway speaks for its tenant and reads receipt keys, and nothing else", func(t *testing.T) {
		gateway := connect(t, srv, "acme-gateway")
		reply, err := gateway.RequestWithContext(ctx, "gov.admit.acme.agenthook", []byte("{}"))
		ok(t, err)
		if got, want := string(reply.Data), "gateway-acme:acme-gateway/acme-gateway"; got != want {
			t.Errorf("the admitter sees %q, want %q", got, want)
		}
		if _, err := streams.KVKeys(ctx, jet(t, gateway), streams.BucketKeys); err != nil {
			t.Errorf("the receipt keys cannot be read: %v", err)
		}
		for _, subj := range []string{"gov.resolve.acme", "gov.admit.globex.aaep", "gov.decisions.acme.allow.s1", "$KV.tokens.acme.x", "$JS.API.STREAM.INFO.KV_tokens", "$JS.API.STREAM.MSG.GET.KV_tokens", "gov.tokens.globex", "$KV.publishers.x", "gov.events.acme.acme-runtime.aaep.s1.request"} {
			refused(t, gateway, subj)
		}
	})
	t.Run("nothing of it is in the log", func(t *testing.T) {
		state, err := streams.StreamState(ctx, jet(t, connect(t, srv, "auditor")), streams.DefaultShard)
		ok(t, err)
		if state.LastSeq != 1 {
			t.Errorf("the log holds %d messages, want the one event", state.LastSeq)
		}
	})
	t.Run("a wrong password is refused", func(t *testing.T) {
		_, err := nats.Connect(srv.ClientURL(), nats.UserInfo("acme-runtime", "guess"))
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("got %v", err)
		}
	})
}

// refused publishes and waits for the server's refusal.
func refused(t *testing.T, nc *nats.Conn, subj string) {
	t.Helper()
	got := make(chan error, 8)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { got <- err })
	ok(t, nc.Publish(subj, []byte("x")))
	ok(t, nc.Flush())
	select {
	case err := <-got:
		if !strings.Contains(err.Error(), "Permissions Violation") || !strings.Contains(err.Error(), subj) {
			t.Errorf("publishing on %s: %v", subj, err)
		}
	case <-time.After(patience):
		t.Errorf("the server took a message on %s", subj)
	}
}

// TestNATSConfigWithoutPasswords: a server must not start with an empty one.
func TestNATSConfigWithoutPasswords(t *testing.T) {
	setPasswords(t, read(t, natsConf))
	ok(t, os.Unsetenv(passwordVar("admitter")))
	if _, err := natsd.ProcessConfigFile(path(natsConf)); err == nil {
		t.Error("the configuration is accepted without the admitter's password")
	}
}

// TestUserForAChangeLoads: the user that docs/operating.md adds for a change of a stream is one that a reload takes:
// the environment of a server that runs has no variable for its password.
func TestUserForAChangeLoads(t *testing.T) {
	users := regexp.MustCompile(`\{user: [^}]*\}`).FindAllString(read(t, "docs/operating.md"), -1)
	if len(users) != 1 {
		t.Fatalf("%q", users)
	}
	opts := &natsd.Options{}
	if err := opts.ProcessConfigString(`accounts { "COUNTERSIGN" { users: [ ` + users[0] + ` ] } }`); err != nil || len(opts.Users) != 1 {
		t.Errorf("%s: %v, %d users", users[0], err, len(opts.Users))
	}
}

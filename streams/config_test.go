package streams

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/countersign-dev/countersign/events/subject"
)

func TestConfigRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*ServerConfig)
		want string
	}{
		{"store dir", func(c *ServerConfig) { c.StoreDir = "" }, "StoreDir"},
		{"store dir quote", func(c *ServerConfig) { c.StoreDir = "/x\"\nport: 1" }, "StoreDir"},
		{"name", func(c *ServerConfig) { c.Name = "a b" }, "Name"},
		{"host", func(c *ServerConfig) { c.Host = "x\ny" }, "Host"},
		{"port", func(c *ServerConfig) { c.Port = 70000 }, "Port"},
		{"sync", func(c *ServerConfig) { c.SyncInterval = "never" }, "SyncInterval"},
		{"sync zero", func(c *ServerConfig) { c.SyncInterval = "0s" }, "SyncInterval"},
		{"payload", func(c *ServerConfig) { c.MaxPayload = 10 }, "MaxPayload"},
		{"prefix", func(c *ServerConfig) { c.Space.Prefix = "gov.>" }, "Space.Prefix"},
		{"shard", func(c *ServerConfig) { c.Shard = "G.V" }, "Shard"},
		{"tenant twice", func(c *ServerConfig) { c.Tenants = append(c.Tenants, Tenant{Name: "acme"}) }, "twice"},
		{"tenant empty", func(c *ServerConfig) { c.Tenants[0].Name = "" }, "no name"},
		{"user twice", func(c *ServerConfig) { c.Tenants[1].Users[0].Name = "runtime" }, "twice"},
		{"user name", func(c *ServerConfig) { c.Services[0].Name = "a.>" }, "user name"},
		{"user empty", func(c *ServerConfig) { c.Services[0].Name = "" }, "user name"},
		{"password empty", func(c *ServerConfig) { c.Services[0].Password = "" }, "password"},
		{"password quote", func(c *ServerConfig) { c.Services[0].Password = `a"b` }, "password"},
		{"inbox wildcard", func(c *ServerConfig) { c.Services[0].InboxPrefix = "_INBOX.>" }, "inbox"},
		{"inbox overlap", func(c *ServerConfig) { c.Services[0].InboxPrefix = "_INBOX_auditor.sub" }, "overlap"},
		{"inbox on log", func(c *ServerConfig) { c.Services[0].InboxPrefix = "gov.decisions" }, "own subjects"},
		{"service role in tenant", func(c *ServerConfig) { c.Tenants[0].Users[0].Role = RoleAdmitter }, "role"},
		{"tenant role in services", func(c *ServerConfig) { c.Services[0].Role = RoleRuntime }, "role"},
		{"no role", func(c *ServerConfig) { c.Services[0].Role = "" }, "role"},
		{"operator in tenant", func(c *ServerConfig) { c.Tenants[0].Users[0].Role = RoleOperator }, "role"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(t)
			tt.do(&c)
			_, err := c.Render()
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "pw-") {
				t.Errorf("the message holds a password: %v", err)
			}
		})
	}
}

// Invariants of the permission table.
func TestRoleTable(t *testing.T) {
	s := placeholders{prefix: "gov", shard: "GOV", tenant: "t", user: "u", inbox: "_INBOX_u"}
	for name, r := range roles {
		for _, sub := range s.fillAll(r.sub) {
			if name != RoleAdmitter && (overlaps(sub, "gov.admit.t.aaep") || overlaps(sub, "gov.resolve.t") || overlaps(sub, "gov.tokens.t")) {
				t.Errorf("%s may answer requests: %s", name, sub)
			}
			if name != RoleAdmitter && overlaps(sub, "gov.ingest.t.u.aaep.s.x") {
				t.Errorf("%s may take events in: %s", name, sub)
			}
			if name != RoleCorrelator && overlaps(sub, "gov.follow.t") {
				t.Errorf("%s may answer followers: %s", name, sub)
			}
		}
		for _, pub := range s.fillAll(r.pub) {
			if overlaps(pub, "gov.ingest.t.u.aaep.s.x") { // publishers have it under another name
				t.Errorf("%s could send events with a forged identity: %s", name, pub)
			}
			if r.place == placeTenant && strings.HasPrefix(pub, "$JS.") {
				t.Errorf("%s reaches JetStream: %s", name, pub)
			}
			if r.place == placeGateway && strings.HasPrefix(pub, "$JS.") && !slices.Contains(gatewayReads, pub) {
				t.Errorf("%s reaches more of JetStream than the receipt keys: %s", name, pub)
			}
			if r.place&(placeTenant|placeGateway) == 0 && overlaps(pub, "gov.follow.t") {
				t.Errorf("%s could read a tenant's outputs with a forged identity: %s", name, pub)
			}
			for _, never := range []string{"$JS.API.STREAM.PURGE.GOV", "$JS.API.STREAM.DELETE.GOV", "$JS.API.STREAM.UPDATE.GOV", "$JS.API.STREAM.RESTORE.GOV"} {
				if overlaps(pub, never) {
					t.Errorf("%s may %s by %s", name, never, pub)
				}
			}
			for _, b := range allBuckets {
				if subj := "$JS.API.DIRECT.GET." + bucketStream(b.name); overlaps(pub, subj) || overlaps(pub, subj+".$KV."+b.name+".k") {
					t.Errorf("%s may read %s from any replica by %s", name, b.name, pub)
				}
				if subj := "$JS.API.STREAM.UPDATE." + bucketStream(b.name); overlaps(pub, subj) {
					t.Errorf("%s may change the settings of %s by %s", name, b.name, pub)
				}
			}
			for _, stream := range []string{StreamQuarantine, StreamCheckpoints, "KV_other"} {
				if subj := "$JS.API.STREAM.UPDATE." + stream; overlaps(pub, subj) {
					t.Errorf("%s may change the settings of %s by %s", name, stream, pub)
				}
			}
			for _, stream := range slices.Concat(erasableStreams, []string{"GOV", "KV_policies", StreamCheckpoints}) {
				if subj := "$JS.API.STREAM.MSG.DELETE." + stream; name != RoleCustodian && overlaps(pub, subj) {
					t.Errorf("%s may %s by %s; only the custodian deletes", name, subj, pub)
				}
			}
			if r.place&(placeTenant|placeGateway) == 0 && (overlaps(pub, "gov.admit.t.aaep") || overlaps(pub, "gov.resolve.t") || overlaps(pub, "gov.tokens.t")) {
				t.Errorf("%s could ask with a forged identity: %s", name, pub)
			}
		}
	}
	text, err := testConfig(t).Render()
	ok(t, err)
	if strings.Contains(string(text), "allow_responses") {
		t.Error("allow_responses overrides a deny")
	}
}

// overlaps says whether a pattern matches a plain subject.
func overlaps(pattern, subj string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subj, ".")
	for i, tok := range p {
		switch {
		case tok == ">":
			return len(s) > i
		case i >= len(s) || tok != "*" && tok != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

func TestRenderEscapesTenantsAndReadsEnvironment(t *testing.T) {
	t.Setenv("STREAMS_TEST_PW", "pw-from-env")
	name := "Müller & Co.>"
	f := start(t, func(c *ServerConfig) {
		c.Tenants[0].Name = name
		c.Tenants[0].Users[0].Password = "$STREAMS_TEST_PW"
		c.Tenants[0].Users[1].Password = "$2a$04$" + "abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyz01234"
		c.Space.Prefix = "acme.gov"
	})
	_, err := Connect(ctx(t), ConnectOptions{URL: f.srv.ClientURL(), User: "runtime", Password: "$STREAMS_TEST_PW"})
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("the reference itself is taken for the password: %v", err)
	}
	nc, err := Connect(ctx(t), ConnectOptions{URL: f.srv.ClientURL(), User: "runtime", Password: "pw-from-env"})
	ok(t, err)
	defer nc.Close()
	space := subject.Space{Prefix: "acme.gov"}
	adm := f.conn("admitter")
	got := make(chan *nats.Msg, 1)
	_, err = adm.ChanSubscribe(space.All(subject.Admit), got)
	ok(t, err)
	ok(t, adm.Flush())
	ok(t, nc.Publish(space.Admit(name, "aaep"), nil))
	id, err := RequestIdentity((<-got).Header)
	if err != nil || id != (Identity{accountFor(name, User{Name: "runtime", Role: RoleRuntime}), "runtime"}) {
		t.Error(id, err)
	}
}

// Different pairs of tenant and user have different accounts.
func TestAccountForIsInjective(t *testing.T) {
	names := []string{"a", "a-b", "a:b", "a.b", "~", "", "tenant-a", "~YS5i", "ü"}
	seen := map[string][2]string{}
	for _, tenant := range names {
		for _, user := range []string{"a", "b", "a-b", "b-a"} {
			account := accountFor(tenant, User{Name: user, Role: RoleRuntime})
			if other, twice := seen[account]; twice {
				t.Errorf("%q is the account of %q and of %q", account, other, [2]string{tenant, user})
			}
			seen[account] = [2]string{tenant, user}
			if id := (Identity{account, user}); tenant != "" && !id.IsOfTenant(tenant) || id.IsOfTenant(tenant+"x") || (Identity{account, user + "x"}).IsOfTenant(tenant) {
				t.Errorf("%+v of %q", id, tenant)
			}
		}
	}
}

// What the roles are for works.
func TestRolesCanWork(t *testing.T) {
	f := start(t)
	adm := f.conn("admitter")
	svc, err := micro.AddService(adm, micro.Config{Name: "admitter", Version: "1.0.0"})
	ok(t, err)
	ok(t, svc.AddEndpoint("admit", micro.HandlerFunc(func(r micro.Request) {
		id, err := RequestIdentity(r.Headers())
		if err != nil || r.Respond([]byte(id.User)) != nil {
			t.Error(err)
		}
	}), micro.WithEndpointSubject("gov.admit.>")))
	ok(t, adm.Flush())

	reply, err := f.conn("runtime2").RequestWithContext(ctx(t), "gov.admit.acme.aaep", nil)
	ok(t, err)
	if string(reply.Data) != "runtime2" {
		t.Errorf("%s", reply.Data)
	}
	op := f.conn("operator")
	for _, verb := range []string{"PING", "INFO.admitter", "STATS"} { // nats micro ls, info, stats
		reply, err := op.RequestWithContext(ctx(t), "$SRV."+verb, nil)
		ok(t, err)
		if !strings.Contains(string(reply.Data), `"name":"admitter"`) {
			t.Errorf("%s: %s", verb, reply.Data)
		}
	}
	sub, err := f.conn("subscriber").SubscribeSync("gov.decisions.acme.>")
	ok(t, err)
	other, err := f.conn("mallory-sub").SubscribeSync("gov.decisions.globex.>")
	ok(t, err)
	ok(t, f.conn("subscriber").Flush())
	c := newCommitter(t, f, CommitterOptions{})
	eventually(t, func() bool { // interest crosses accounts in its own time
		_, err := c.Append(ctx(t), decision(7))
		ok(t, err)
		m, err := sub.NextMsg(100 * time.Millisecond)
		return err == nil && string(m.Data) == "7"
	})
	if m, err := other.NextMsg(20 * time.Millisecond); err == nil {
		t.Errorf("tenant globex got %s", m.Subject)
	}
}

// The buckets through the permissions of each role.
func TestKVByRole(t *testing.T) {
	f := start(t)
	bucket := func(user, name string) jetstream.KeyValue {
		kv, err := f.js(f.conn(user)).KeyValue(ctx(t), name)
		ok(t, err)
		return kv
	}
	for writer, buckets := range map[string][]string{
		"operator": {BucketPolicies, BucketMandates, BucketPublishers}, "admitter": {BucketApprovals, BucketKeys, BucketSpend}, "auditor": {BucketSessionSecrets, BucketKeys},
	} {
		for _, b := range buckets {
			kv := bucket(writer, b)
			rev, err := kv.Create(ctx(t), writer+".k", []byte("v1"))
			ok(t, err)
			if _, err := kv.Create(ctx(t), writer+".k", []byte("v2")); !errors.Is(err, jetstream.ErrKeyExists) {
				t.Errorf("%s %s: created twice: %v", writer, b, err)
			}
			if _, err := kv.Update(ctx(t), writer+".k", []byte("v3"), rev+7); err == nil {
				t.Errorf("%s %s: updated at a wrong revision", writer, b)
			}
			_, err = kv.Update(ctx(t), writer+".k", []byte("v3"), rev)
			ok(t, err)
			e, err := kv.Get(ctx(t), writer+".k")
			if err != nil || string(e.Value()) != "v3" {
				t.Errorf("%s %s: %v", writer, b, err)
			}
		}
	}
	w, err := bucket("admitter", BucketPolicies).WatchAll(ctx(t))
	ok(t, err)
	if e := <-w.Updates(); e == nil || e.Key() != "operator.k" {
		t.Errorf("watch: %v", e)
	}
	ok(t, w.Stop())
	keys, err := KVKeys(ctx(t), f.js(f.conn("operator")), BucketPolicies)
	if err != nil || len(keys) != 1 || keys[0] != "operator.k" {
		t.Error(keys, err)
	}
}

func TestConnectErrors(t *testing.T) {
	f := start(t)
	url := f.srv.ClientURL()
	for _, tt := range []struct {
		o    ConnectOptions
		want string
	}{
		{ConnectOptions{}, "--server"},
		{ConnectOptions{URL: "nats://127.0.0.1:1"}, "countersign up"},
		{ConnectOptions{URL: url, User: "runtime", Password: "secret-guess"}, "--user"},
		{ConnectOptions{URL: url}, "--user"},
		{ConnectOptions{URL: "nats://bob:secret-guess@127.0.0.1:1"}, "127.0.0.1:1"},
		{ConnectOptions{URL: url, CredsFile: "/does/not/exist"}, "/does/not/exist"},
		{ConnectOptions{URL: "bob:secret-guess@127.0.0.1:1"}, "127.0.0.1:1"},
		{ConnectOptions{URL: "nats://bob:secret-guess%@127.0.0.1:1"}, "percent-encode"},
		{ConnectOptions{URL: "nats://bob:secret-guess#@127.0.0.1:1"}, "percent-encode"},
		{ConnectOptions{URL: "nats://127.0.0.1:1,nats://bob:secret-guess/@127.0.0.1:1"}, "percent-encode"},
		{ConnectOptions{URL: "nats://127.0.0.1:1,secret-guess@127.0.0.1:1"}, "countersign up"},
		{ConnectOptions{URL: "nats://bob@127.0.0.1:1#secret-guess@127.0.0.1:1"}, "countersign up"},
	} {
		nc, err := Connect(ctx(t), tt.o)
		if err == nil {
			nc.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret-guess") {
			t.Errorf("%+v: %v, want %q and no password", tt.o.URL, err, tt.want)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Connect(gone, ConnectOptions{URL: url}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestServerDoesNotStart(t *testing.T) {
	f := start(t)
	cfg := testConfig(t)
	cfg.Port = portOf(t, f.srv.ClientURL())
	if _, err := startServer(t, cfg); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("port taken: %v", err)
	}
	cfg = testConfig(t)
	cfg.StoreDir += "/file"
	ok(t, os.WriteFile(cfg.StoreDir, nil, 0o600))
	if _, err := startServer(t, cfg); err == nil {
		t.Error("a file for a store directory")
	}
}

func TestRequestIdentity(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    map[string][]string
		ok   bool
	}{
		{"good", map[string][]string{headerRequestInfo: {`{"acc":"tenant-a","user":"u","rtt":1}`}}, true},
		{"none", nil, false},
		{"two", map[string][]string{headerRequestInfo: {`{"acc":"a","user":"u"}`, `{"acc":"a","user":"u"}`}}, false},
		{"other case", map[string][]string{"nats-request-info": {`{"acc":"a","user":"u"}`}}, false},
		{"not shared", map[string][]string{headerRequestInfo: {`{"acc":"a"}`}}, false},
		{"no account", map[string][]string{headerRequestInfo: {`{"user":"u"}`}}, false},
		{"not JSON", map[string][]string{headerRequestInfo: {`x`}}, false},
	} {
		id, err := RequestIdentity(tt.h)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrIdentity) || tt.ok && id != (Identity{"tenant-a", "u"}) {
			t.Errorf("%s: %+v %v", tt.name, id, err)
		}
	}
}

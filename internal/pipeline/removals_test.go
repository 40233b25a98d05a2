package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
	"github.com/countersign-dev/countersign/streams/embedded"
)

// notFollowed is the context of a command that does not wait: no `up` runs in these tests.
func notFollowed(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A removal takes the user's credentials out of the state; the same name that is added again gets others. To
// remove again is no error, and what cannot be removed is refused with the reason.
func TestRemovedFromTheState(t *testing.T) {
	up := upWith(t)
	path := filepath.Join(up.DataDir, stateFile)
	if _, err := editState(t.Context(), up, func(s *upState) (bool, error) { s.Tenants = []string{"globex"}; return true, nil }); err != nil {
		t.Fatal(err)
	}
	for _, m := range []tenantUser{{"acme", "dana", streams.RoleReviewer}, {"globex", "gus", streams.RoleRuntime}} {
		if err := addTo(t, up, m); err != nil {
			t.Fatal(err)
		}
	}
	before, err := readState(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tenant, name, says string }{
		{"acme", "nobody", "has no user"}, {"acme", "gus", `is of the tenant "globex"`}, {"acme", "acme-runtime", "belongs to `countersign up` itself"},
		{"globex", "globex-runtime", "goes with it"}, {"acme", "admitter", "has no user"}, {"initech", "dana", `is of the tenant "acme"`},
	} {
		if _, err := RemoveUser(notFollowed(t), up, c.tenant, c.name); !errors.Is(err, ErrMember) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s of %s: %v", c.name, c.tenant, err)
		}
	}
	for name, says := range map[string]string{"acme": "itself", "initech": "there is no tenant"} {
		if _, err := RemoveTenant(notFollowed(t), up, name); !errors.Is(err, ErrMember) || !strings.Contains(err.Error(), says) {
			t.Errorf("tenant %s: %v", name, err)
		}
	}
	if s, err := readState(path); err != nil || s.Generation != before.Generation {
		t.Fatalf("a refused removal has changed the state: %d, %v", s.Generation, err)
	}
	for range 2 { // again: no error but for the wait
		if out, err := RemoveUser(notFollowed(t), up, "acme", "dana"); errors.Is(err, ErrMember) || !strings.Contains(err.Error(), "not in force yet") || len(out.Users) != 1 {
			t.Errorf("%+v %v", out, err)
		}
		if out, err := RemoveTenant(notFollowed(t), up, "globex"); errors.Is(err, ErrMember) || len(out.Users) != len(tenantRoles)+1 {
			t.Errorf("%+v %v", out, err)
		}
	}
	s, err := readState(path)
	if err != nil || s.Generation != before.Generation+2 || len(s.Tenants)+len(s.Members) != 0 || len(s.Removed) != len(tenantRoles)+2 {
		t.Fatalf("%+v %v", s, err)
	}
	for _, name := range []string{"dana", "gus", "globex-runtime", "globex-gateway"} {
		if s.Passwords[name] != "" || s.Tokens[name] != "" {
			t.Errorf("the state keeps the credentials of %s", name)
		}
	}
	if err := addTo(t, up, tenantUser{"acme", "dana", streams.RoleReviewer}); err != nil {
		t.Fatal(err)
	}
	if s, err = readState(path); err != nil || s.Passwords["dana"] == before.Passwords["dana"] || s.Tokens["dana"] == before.Tokens["dana"] {
		t.Errorf("the name came back with its old credentials: %v", err)
	}
}

// withServer is a pipeline with a state, and a provisioned server in this process.
func withServer(t *testing.T, up target.Ready, s upState) *Pipeline {
	t.Helper()
	config, err := NATSConfig{Host: streams.DefaultHost, Port: -1, StoreDir: t.TempDir(), Services: s.serviceUsers(), Tenants: s.tenantConfigs("acme")}.render()
	if err != nil {
		t.Fatal(err)
	}
	srv, err := embedded.Start(context.Background(), config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	p := &Pipeline{opt: Options{Tenant: "acme", DataDir: up.DataDir, Log: zerolog.Nop()}, state: s, ready: target.Ready{NATSURL: srv.ClientURL()}}
	if err := p.provisionStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func asOperator(t *testing.T, p *Pipeline) jetstream.JetStream {
	t.Helper()
	nc, js, err := p.connectAs(t.Context(), streams.RoleOperator, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return js
}

// A pipeline that runs for longer than its tokens live renews them; a revoked one stays revoked.
func TestTokensAreRenewedWhileRunning(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	up := upWith(t)
	s, err := readState(filepath.Join(up.DataDir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	p := withServer(t, up, s)
	p.opt.Services, p.gateways.urls = []string{procGateway}, map[string]string{"acme": "http://127.0.0.1:1"}
	js := asOperator(t, p)
	soon := time.Now().UTC().Truncate(time.Second).Add(tokenLeft / 3)
	store := func(user string, role streams.Role, revoked *time.Time) (read func() token.Record) {
		id, _ := token.IDOf(s.Tokens[user])
		body, err := json.Marshal(token.Record{Hash: token.Hash(s.Tokens[user]), Tenant: "acme", User: user, Role: string(role), CreatedAt: soon.Add(-tokenLife), ExpiresAt: soon, RevokedAt: revoked})
		if err != nil {
			t.Fatal(err)
		}
		if err := putOnce(t.Context(), js, streams.BucketTokens, token.Key("acme", id), body, nil); err != nil {
			t.Fatal(err)
		}
		return func() token.Record {
			last, err := streams.KVLast(t.Context(), js, streams.BucketTokens, token.Key("acme", id))
			if err != nil {
				t.Fatal(err)
			}
			r, err := token.Decode(last.Value)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	// In the order in which they are looked at: the revoked one was, once the other is renewed.
	users := s.tokenUsers("acme")
	revoked := store(users[0].Name, users[0].Role, &soon)
	ending := store(users[len(users)-1].Name, users[len(users)-1].Role, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.followState(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ending().ExpiresAt.Equal(soon); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a token that ends soon was not renewed")
		}
	}
	if left := time.Until(ending().ExpiresAt); left < tokenLife-time.Hour || !revoked().ExpiresAt.Equal(soon) {
		t.Errorf("%s left, the revoked one ends %s", left, revoked().ExpiresAt)
	}
}

// A revoked token stays revoked in a new log, whose bucket of tokens is empty, and in an older copy of the log; so
// does one whose record was deleted. The other users' tokens go on.
func TestRevokedTokensStayRevokedInANewLog(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: left out of -short")
	}
	up := upWith(t)
	state := func() upState {
		t.Helper()
		s, err := readState(filepath.Join(up.DataDir, stateFile))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	prepare := func(p *Pipeline) {
		t.Helper()
		if err := p.prepareGateway(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p := withServer(t, up, state())
	prepare(p)
	js := asOperator(t, p)
	kv, err := streams.OpenBucket(t.Context(), js, streams.BucketTokens)
	if err != nil {
		t.Fatal(err)
	}
	tokens := p.state.Tokens
	key := func(user string) string { id, _ := token.IDOf(tokens[user]); return token.Key("acme", id) }
	if err := revokeToken(t.Context(), js, kv, key("acme-runtime")); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), key("acme-subscriber")); err != nil {
		t.Fatal(err)
	}
	prepare(p)
	if at := p.state.Generation; at != state().Generation {
		t.Errorf("generation %d", at)
	}
	newLog := withServer(t, up, state())
	prepare(newLog)
	older := withServer(t, up, upState{Passwords: p.state.Passwords, Tokens: tokens, path: p.state.path})
	prepare(older)
	older.state = state()
	prepare(older)
	for name, p := range map[string]*Pipeline{"new": newLog, "older": older} {
		js := asOperator(t, p)
		for user, want := range map[string]bool{"acme-runtime": false, "acme-subscriber": false, "acme-reviewer": true} {
			if got := isValid(t, js, tokens[user]); got != want {
				t.Errorf("%s log: the token of %s is valid: %t", name, user, got)
			}
		}
	}
}

// A revoked token is noted though a later user's cannot be stored.
func TestARevokedTokenIsNotedThoughAnotherFails(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	up := upWith(t)
	s, err := readState(filepath.Join(up.DataDir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	p := withServer(t, up, s)
	if err := p.prepareGateway(t.Context()); err != nil {
		t.Fatal(err)
	}
	js := asOperator(t, p)
	kv, err := streams.OpenBucket(t.Context(), js, streams.BucketTokens)
	if err != nil {
		t.Fatal(err)
	}
	users := p.state.tokenUsers("acme")
	id, _ := token.IDOf(p.state.Tokens[users[0].Name])
	if err := revokeToken(t.Context(), js, kv, token.Key("acme", id)); err != nil {
		t.Fatal(err)
	}
	p.state.Tokens = maps.Clone(p.state.Tokens)
	p.state.Tokens[users[len(users)-1].Name] = "no token"
	if err := p.prepareGateway(t.Context()); err == nil || !strings.Contains(err.Error(), users[len(users)-1].Name) {
		t.Errorf("%v", err)
	}
	if noted, err := readState(p.state.path); err != nil || noted.RevokedTokens[id].IsZero() {
		t.Errorf("it is not noted: %v, %v", noted.RevokedTokens, err)
	}
}

// The tokens of a removed user are revoked, those that operators made and mappings, too, and its registration
// ends. Repeated, as after a crash, it leaves alone what a new user of the name has got; an operator's
// registration stays.
func TestCredentialsOfRemovedUsersEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server: left out of -short")
	}
	up := upWith(t)
	path := filepath.Join(up.DataDir, stateFile)
	web, ops := tenantUser{"acme", "web2", streams.RoleRuntime}, tenantUser{"acme", "ops", streams.RoleRuntime}
	for _, m := range []tenantUser{web, ops} {
		if err := addTo(t, up, m); err != nil {
			t.Fatal(err)
		}
	}
	s, err := readState(path)
	if err != nil {
		t.Fatal(err)
	}
	p := withServer(t, up, s)
	if err := p.prepareGateway(t.Context()); err != nil {
		t.Fatal(err)
	}
	js := asOperator(t, p)
	byOperator := storeAnother(t, p, js, web)
	own := []byte(`{"schema":"https://schemas.countersign.dev/countersign/publisher-registration/v1","publisher":"ops","gateway":"acme-gateway"}`)
	put(t, js, ops, own)
	first := s.Tokens["web2"]
	for _, name := range []string{"web2", "ops"} {
		_, _ = RemoveUser(notFollowed(t), up, "acme", name)
	}
	follow := func() {
		t.Helper()
		if p.state, err = readState(path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.endRemoved(t.Context(), p.notedGeneration()); err != nil {
				t.Fatal(err)
			}
			if err := p.prepareGateway(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	follow()
	for text, whose := range map[string]string{first: "its own", byOperator: "the operator's", s.Tokens["ops"]: "that of ops"} {
		if isValid(t, js, text) {
			t.Errorf("the token is valid: %s", whose)
		}
	}
	if !isValid(t, js, s.Tokens["acme-runtime"]) {
		t.Error("another user's token was revoked")
	}
	if reg := held(t, js, web); reg != "none" {
		t.Errorf("the registration of a removed user: %s", reg)
	}
	if reg := held(t, js, ops); reg != string(own) {
		t.Errorf("the operator's registration: %s", reg)
	}
	if err := addTo(t, up, web); err != nil { // before the removal was noted as in force
		t.Fatal(err)
	}
	follow()
	if now := p.state.Tokens["web2"]; !isValid(t, js, now) || isValid(t, js, first) || isValid(t, js, byOperator) {
		t.Error("the new user's token does not count alone")
	}
	if reg := held(t, js, web); !strings.Contains(reg, `"gateway":"acme-gateway"`) {
		t.Errorf("the registration of the new user: %s", reg)
	}
	if err := p.noteInForce(p.state.Generation, nil); err != nil {
		t.Fatal(err)
	}
	later := storeAnother(t, p, js, ops) // an operator's act, after the removal
	_, _ = RemoveUser(notFollowed(t), up, "acme", "web2")
	follow()
	if !isValid(t, js, later) {
		t.Error("a removal that is in force was repeated")
	}
}

// storeAnother stores another token of a user, like an operator.
func storeAnother(t *testing.T, p *Pipeline, js jetstream.JetStream, m tenantUser) string {
	t.Helper()
	text, err := newToken()
	if err != nil {
		t.Fatal(err)
	}
	if err := storeToken(t.Context(), js, m, upState{Tokens: map[string]string{m.Name: text}, path: p.opt.DataDir}, nil); err != nil {
		t.Fatal(err)
	}
	return text
}

func isValid(t *testing.T, js jetstream.JetStream, text string) bool {
	t.Helper()
	records, err := streams.KVUnder(t.Context(), js, streams.BucketTokens, token.Prefix("acme"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, ok := token.NewSet("acme", records).Find(text, time.Now())
	return ok
}

func put(t *testing.T, js jetstream.JetStream, m tenantUser, doc []byte) {
	t.Helper()
	key, _, err := registrationOf(m)
	if err == nil {
		err = putOnce(t.Context(), js, streams.BucketPublishers, key, doc, func(*streams.KVEntry) bool { return true })
	}
	if err != nil {
		t.Fatal(err)
	}
}

func held(t *testing.T, js jetstream.JetStream, m tenantUser) string {
	t.Helper()
	key, _, err := registrationOf(m)
	if err != nil {
		t.Fatal(err)
	}
	e, err := streams.KVLast(t.Context(), js, streams.BucketPublishers, key)
	if err != nil || e == nil {
		t.Fatalf("%v %v", e, err)
	}
	if e.Deleted {
		return "none"
	}
	return string(e.Value)
}

// A removal is in force only when the gateway refuses the user's token; a token that the gateway still takes
// is an error, also at the next try.
func TestRemovalWaitsForTheGateway(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer old" {
			t.Errorf("asked with %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(status)
	}))
	defer srv.Close()
	p := &Pipeline{state: upState{Removed: []removal{{tenantUser{"acme", "dana", streams.RoleReviewer}, 1}}}, gateways: tenantGateways{first: "acme", urls: map[string]string{"acme": srv.URL}}, ending: map[string]string{}}
	p.noteEnding(upState{Tokens: map[string]string{"dana": "old", "erin": "other"}})
	for range 2 {
		if err := p.awaitRefused(notFollowed(t)); err == nil {
			t.Fatal("a gateway that takes the token")
		}
	}
	status = http.StatusUnauthorized
	if err := p.awaitRefused(t.Context()); err != nil || len(p.ending) != 0 {
		t.Errorf("%v, left %v", err, len(p.ending))
	}
}

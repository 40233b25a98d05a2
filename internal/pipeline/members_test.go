package pipeline

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/supervise"
	"github.com/countersign-dev/countersign/streams"
)

// upWith is a ready file of an `up` with a state, and nothing that runs.
func upWith(t *testing.T) target.Ready {
	t.Helper()
	dir := t.TempDir()
	if _, err := loadState(t.Context(), filepath.Join(dir, stateFile), "acme"); err != nil {
		t.Fatal(err)
	}
	return target.Ready{DataDir: dir, Tenant: "acme"}
}

func addTo(t *testing.T, up target.Ready, m tenantUser) error {
	t.Helper()
	_, err := editState(t.Context(), up, func(s *upState) (bool, error) { s.Members = append(s.Members, m); return true, nil })
	return err
}

// Added users and tenants are in the server's configuration, at the next start, too, with secrets of their own.
func TestAddedUsersStay(t *testing.T) {
	up := upWith(t)
	if err := addTo(t, up, tenantUser{"acme", "dana", streams.RoleReviewer}); err != nil {
		t.Fatal(err)
	}
	if _, err := editState(t.Context(), up, func(s *upState) (bool, error) { s.Tenants = append(s.Tenants, "globex"); return true, nil }); err != nil {
		t.Fatal(err)
	}
	s, err := loadState(t.Context(), filepath.Join(up.DataDir, stateFile), "acme")
	if err != nil || s.Generation != 2 {
		t.Fatalf("generation %d, %v", s.Generation, err)
	}
	tenants := s.tenantConfigs("acme")
	if len(tenants) != 2 || len(tenants[0].Users) != len(tenantRoles)+1 || len(tenants[1].Users) != len(tenantRoles) {
		t.Fatalf("%+v", tenants)
	}
	seen := map[string]bool{}
	for _, tenant := range tenants {
		for _, u := range tenant.Users {
			if u.Password == "" || seen[u.Password] {
				t.Errorf("password of %s", u.Name)
			}
			seen[u.Password] = true
		}
	}
	if s.Tokens["dana"] == "" || s.Tokens["globex-runtime"] == "" || s.Tokens["dana"] == s.Tokens["acme-reviewer"] || s.Tokens["globex-gateway"] != "" {
		t.Errorf("tokens of %v", len(s.Tokens))
	}
	if other := s.tenantConfigs("other"); len(other) != 2 || other[0].Name != "other" { // dana's tenant is not part of that run
		t.Errorf("%+v", other)
	}
}

// What the server would not take is refused before anything is written.
func TestUsersThatCannotBeAdded(t *testing.T) {
	up := upWith(t)
	for _, m := range []tenantUser{
		{"acme", "", streams.RoleReviewer}, {"acme", "a b", streams.RoleReviewer}, {"acme", "a.b", streams.RoleReviewer}, {"acme", "*", streams.RoleReviewer},
		{"acme", strings.Repeat("x", 65), streams.RoleReviewer}, {"acme", "acme-runtime", streams.RoleReviewer}, {"acme", "admitter", streams.RoleRuntime},
		{"acme", "eve", streams.RoleOperator}, {"acme", "eve", streams.RoleAdmitter}, {"acme", "eve\"", streams.RoleReviewer},
	} {
		if err := addTo(t, up, m); !errors.Is(err, ErrMember) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, role := range []streams.Role{streams.RoleOperator, streams.RoleGateway, streams.RoleAdmitter, ""} {
		if _, err := AddUser(t.Context(), up, "acme", "eve", role); !errors.Is(err, ErrMember) {
			t.Errorf("role %q: %v", role, err)
		}
	}
	for _, name := range []string{"", "a.b", "a b", ">", strings.Repeat("x", 49)} {
		if _, err := AddTenant(t.Context(), up, name); !errors.Is(err, ErrMember) {
			t.Errorf("tenant %q: %v", name, err)
		}
	}
	if _, err := AddUser(t.Context(), target.Ready{Tenant: "acme"}, "acme", "eve", streams.RoleReviewer); !errors.Is(err, ErrMember) {
		t.Errorf("a ready file of a user: %v", err)
	}
	s, err := readState(filepath.Join(up.DataDir, stateFile))
	if err != nil || s.Generation != 0 || len(s.Members)+len(s.Tenants) != 0 || slices.Contains(s.userNames("acme"), "eve") {
		t.Errorf("%+v %v", s.Members, err)
	}
}

// Another user than the one of `up`, root too, changes nothing: `up` could not read the file.
func TestOnlyTheOwnerAdds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	up := upWith(t)
	path := filepath.Join(up.DataDir, stateFile)
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := addTo(t, up, tenantUser{"acme", "dana", streams.RoleReviewer}); !errors.Is(err, ErrMember) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the state has changed: %v", err)
	}
}

// The state is not read and written while a command changes it.
func TestStateIsLockedWhileItIsLoaded(t *testing.T) {
	up := upWith(t)
	path := filepath.Join(up.DataDir, stateFile)
	unlock, err := lockState(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := loadState(ended, path, "acme"); err == nil || !strings.Contains(err.Error(), "another command") {
		t.Errorf("loaded beside a command: %v", err)
	}
	unlock()
	if _, err := loadState(ended, path, "acme"); err != nil {
		t.Error(err)
	}
}

// A gateway that does not start keeps no other tenant's from being tried, and is reported.
func TestAGatewayThatDoesNotStart(t *testing.T) {
	running := daemon.NewHealth()
	running.SetReady()
	srv := httptest.NewServer(running)
	defer srv.Close()
	p := &Pipeline{health: map[string]string{procGateway: srv.URL}, opt: Options{Tenant: "acme", Services: []string{procGateway}, Exe: "/nonexistent/countersign", ChildLog: io.Discard},
		state: upState{Tenants: []string{"globex", "initech"}}, gateways: tenantGateways{first: "acme", urls: map[string]string{"acme": "http://127.0.0.1:1"}}, sup: supervise.New(zerolog.Nop(), func(string, int) {})}
	err := p.startGateways(t.Context())
	for _, name := range []string{"gateway-globex", "gateway-initech"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := httptest.NewRecorder()
	p.reportHealth(w, nil)
	if body := w.Body.String(); w.Code == 200 || !strings.Contains(body, "gateway-globex/process") || !strings.Contains(body, "gateway-initech/process") || strings.Contains(body, `"gateway/process"`) {
		t.Errorf("%d %s", w.Code, body)
	}
}

// The gateway of the tenant of `up` has the port that was asked for, also after a restart; others have free ones.
func TestPortsOfGateways(t *testing.T) {
	g := tenantGateways{first: "acme", port: 8466}
	has := func(tenant, listen string) {
		t.Helper()
		if env := g.env(tenant); !slices.Contains(env, "COUNTERSIGN_GATEWAY_LISTEN="+listen) {
			t.Errorf("%s: %v", tenant, env)
		}
	}
	has("acme", "127.0.0.1:8466")
	has("globex", "127.0.0.1:0")
	g.urls = map[string]string{"acme": "http://127.0.0.1:8466", "globex": "http://127.0.0.1:40001"}
	has("acme", "127.0.0.1:8466")
	has("globex", "127.0.0.1:40001")
}

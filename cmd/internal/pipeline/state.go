package pipeline

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/streams"
)

// state is what a data directory remembers between runs: one password a user.
type state struct {
	Passwords map[string]string `json:"passwords"`
	path      string
}

// serviceRoles are the users of the services' account (and the operator).
var serviceRoles = []streams.Role{streams.RoleProvisioner, streams.RoleAdmitter, streams.RoleCorrelator, streams.RoleAuditor, streams.RoleCustodian, streams.RoleOperator}

// tenantRoles are a tenant's users.
var tenantRoles = []streams.Role{streams.RoleRuntime, streams.RoleSubscriber, streams.RoleReviewer}

// loadState reads the state at path and gives every user that has none a
// password. The file is readable by its owner only.
func loadState(path, tenant string) (state, error) {
	s := state{Passwords: map[string]string{}, path: path}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if err == nil {
		if err := json.Unmarshal(b, &s); err != nil {
			return s, fmt.Errorf("%s is damaged: %w (move it away to get new passwords)", path, err)
		}
	}
	changed := false
	for _, name := range s.userNames(tenant) {
		if s.Passwords[name] != "" {
			continue
		}
		// A letter first: the server would read digits alone as a number.
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return s, err
		}
		s.Passwords[name] = "p" + hex.EncodeToString(secret)
		changed = true
	}
	if !changed {
		return s, nil
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return s, err
	}
	return s, atomicfile.Write(path, append(text, '\n'), 0o600)
}

// ServicePassword is the password that `up` gave a service's user in a data
// directory; "" if no `up` ever ran there.
func ServicePassword(dataDir string, role streams.Role) (string, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var s state
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return "", fmt.Errorf("reading the passwords in %s: %w", dataDir, err)
	}
	return s.Passwords[string(role)], nil
}

// stateFile is the name of the state in a data directory.
const stateFile = "state.json"

func (s state) userNames(tenant string) (names []string) {
	for _, r := range serviceRoles {
		names = append(names, string(r))
	}
	for _, r := range tenantRoles {
		names = append(names, tenantUser(tenant, r))
	}
	return names
}

// tenantUser names a tenant's user; of a runtime it is also the publisher token.
func tenantUser(tenant string, r streams.Role) string {
	return subject.Escape(tenant) + "-" + string(r)
}

// serviceUser is one of the services' users, named after its role.
func (s state) serviceUser(role string) streams.User {
	return streams.User{Name: role, Password: s.Passwords[role], Role: streams.Role(role)}
}

func (s state) serviceUsers() (users []streams.User) {
	for _, r := range serviceRoles {
		users = append(users, s.serviceUser(string(r)))
	}
	return users
}

func (s state) tenantConfig(name string) streams.Tenant {
	t := streams.Tenant{Name: name}
	for _, r := range tenantRoles {
		u := tenantUser(name, r)
		t.Users = append(t.Users, streams.User{Name: u, Password: s.Passwords[u], Role: r})
	}
	return t
}

// readyRoles are the users that a ready file names, by role.
func (s state) readyRoles(tenant string) map[string]streams.User {
	out := map[string]streams.User{target.Operator: s.serviceUser(string(streams.RoleOperator))}
	for _, u := range s.tenantConfig(tenant).Users {
		out[string(u.Role)] = u
	}
	return out
}

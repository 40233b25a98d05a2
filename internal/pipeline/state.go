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
	"slices"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
)

// upState is the state of a data directory between runs: one password per user, and the tokens.
type upState struct {
	Passwords map[string]string `json:"passwords"`
	Tokens    map[string]string `json:"tokens,omitempty"` // by user, at the gateway
	path      string
}

// serviceRoles are the users of the services' account, with the operator.
var serviceRoles = []streams.Role{streams.RoleProvisioner, streams.RoleAdmitter, streams.RoleCorrelator, streams.RoleAuditor, streams.RoleCustodian, streams.RoleOperator}

// tenantRoles are a tenant's users.
var tenantRoles = append(slices.Clone(tokenRoles), streams.RoleGateway)

// tokenRoles are the roles that a token can have.
var tokenRoles = []streams.Role{streams.RoleRuntime, streams.RoleSubscriber, streams.RoleReviewer}

// loadState reads the state at path and creates missing passwords. Only the file's owner may read
// it.
func loadState(path, tenant string) (upState, error) {
	s := upState{Passwords: map[string]string{}, Tokens: map[string]string{}, path: path}
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
		// A letter first: the server would parse a digits-only password as a number.
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return s, err
		}
		s.Passwords[name] = "p" + hex.EncodeToString(secret)
		changed = true
	}
	for _, r := range tokenRoles {
		if user := tenantUser(tenant, r); s.Tokens[user] == "" {
			if s.Tokens[user], err = newToken(); err != nil {
				return s, err
			}
			changed = true
		}
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

// ServicePassword returns the password of a service's user in a data directory of `up`; "" if no
// `up` ever ran there.
func ServicePassword(dataDir string, role streams.Role) (string, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var s upState
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return "", fmt.Errorf("reading the passwords in %s: %w", dataDir, err)
	}
	return s.Passwords[string(role)], nil
}

// stateFile is the name of the state file in a data directory.
const stateFile = "state.json"

func (s upState) userNames(tenant string) (names []string) {
	for _, r := range serviceRoles {
		names = append(names, string(r))
	}
	for _, r := range tenantRoles {
		names = append(names, tenantUser(tenant, r))
	}
	return names
}

// tenantUser is the name of a tenant's user; a runtime's is also its publisher token.
func tenantUser(tenant string, r streams.Role) string {
	return subject.Escape(tenant) + "-" + string(r)
}

// serviceUser returns the user of a service, named after its role.
func (s upState) serviceUser(role string) streams.User {
	return streams.User{Name: role, Password: s.Passwords[role], Role: streams.Role(role)}
}

func (s upState) serviceUsers() (users []streams.User) {
	for _, r := range serviceRoles {
		users = append(users, s.serviceUser(string(r)))
	}
	return users
}

func (s upState) tenantConfig(name string) streams.Tenant {
	t := streams.Tenant{Name: name}
	for _, r := range tenantRoles {
		u := tenantUser(name, r)
		t.Users = append(t.Users, streams.User{Name: u, Password: s.Passwords[u], Role: r})
	}
	return t
}

// readyRoles returns the users in a ready file, by role.
func (s upState) readyRoles(tenant string) map[string]streams.User {
	out := map[string]streams.User{target.Operator: s.serviceUser(string(streams.RoleOperator))}
	for _, r := range tokenRoles { // the gateway's password is the gateway's alone
		out[string(r)] = s.tenantUser(tenant, r)
	}
	return out
}

// tenantUser is a tenant's user with its password.
func (s upState) tenantUser(tenant string, r streams.Role) streams.User {
	name := tenantUser(tenant, r)
	return streams.User{Name: name, Password: s.Passwords[name], Role: r}
}

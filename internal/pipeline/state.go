package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
)

// upState is the state of a data directory between runs: one password per user, and the tokens.
type upState struct {
	Passwords map[string]string `json:"passwords"`
	Tokens    map[string]string `json:"tokens,omitempty"` // by user, at the gateway

	RevokedTokens map[string]time.Time `json:"revoked_tokens,omitempty"` // of those, by id; also of removed users

	Tenants    []string     `json:"tenants,omitempty"`    // that were added to the one of `up --tenant`
	Members    []tenantUser `json:"members,omitempty"`    // users that were added to the usual ones
	Removed    []removal    `json:"removed,omitempty"`    // the last removal of each user that was removed
	Generation int          `json:"generation,omitempty"` // counts the changes of tenants and users

	path string
}

// tenantUser is a user of a tenant.
type tenantUser struct {
	Tenant string       `json:"tenant"`
	Name   string       `json:"name"`
	Role   streams.Role `json:"role"`
}

// isSame reports whether two entries are of one name in one tenant.
func (m tenantUser) isSame(o tenantUser) bool { return m.Tenant == o.Tenant && m.Name == o.Name }

// speaks reports whether the user puts events on the log: a subscriber its AAEP replies.
func (m tenantUser) speaks() bool {
	return m.Role == streams.RoleRuntime || m.Role == streams.RoleSubscriber
}

// serviceRoles are the users of the services' account, with the operator.
var serviceRoles = []streams.Role{streams.RoleProvisioner, streams.RoleAdmitter, streams.RoleCorrelator, streams.RoleAuditor, streams.RoleCustodian, streams.RoleOperator}

// tenantRoles are a tenant's users.
var tenantRoles = append(slices.Clone(tokenRoles), streams.RoleGateway)

// tokenRoles are the roles that a token can have.
var tokenRoles = []streams.Role{streams.RoleRuntime, streams.RoleSubscriber, streams.RoleReviewer}

// loadState reads the state at path and creates missing passwords. Only the file's owner may read
// it. Commands that add users are kept away meanwhile: an older state must not come after a newer one.
func loadState(ctx context.Context, path, tenant string) (upState, error) {
	unlock, err := lockState(ctx, path)
	if err != nil {
		return upState{}, err
	}
	defer unlock()
	s, err := readState(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	changed, err := s.fillSecrets(tenant)
	if err != nil || !changed {
		return s, err
	}
	return s, s.write()
}

func readState(path string) (upState, error) {
	s := upState{Passwords: map[string]string{}, Tokens: map[string]string{}, path: path}
	b, err := atomicfile.ReadPrivate(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s is damaged: %w (move it away to get new passwords)", path, err)
	}
	if s.Tokens == nil {
		s.Tokens = map[string]string{}
	}
	return s, nil
}

func (s upState) write() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path, append(text, '\n'), 0o600)
}

// fillSecrets creates the passwords and tokens that the users lack.
func (s upState) fillSecrets(tenant string) (changed bool, err error) {
	for _, name := range s.userNames(tenant) {
		if s.Passwords[name] != "" {
			continue
		}
		// A letter first: the server would parse a digits-only password as a number.
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return changed, err
		}
		s.Passwords[name] = "p" + hex.EncodeToString(secret)
		changed = true
	}
	for _, m := range s.tokenUsers(tenant) {
		if s.Tokens[m.Name] == "" {
			if s.Tokens[m.Name], err = newToken(); err != nil {
				return changed, err
			}
			changed = true
		}
	}
	return changed, nil
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

// tenants are the tenants of a run: that of `up --tenant`, and those that were added.
func (s upState) tenants(first string) (list []string) {
	list = append(list, first)
	for _, t := range s.Tenants {
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// usersOf are a tenant's users: one for each role, and those that were added.
func (s upState) usersOf(tenant string) (list []tenantUser) {
	for _, r := range tenantRoles {
		list = append(list, tenantUser{tenant, usualUser(tenant, r), r})
	}
	for _, m := range s.Members {
		if m.Tenant == tenant {
			list = append(list, m)
		}
	}
	return list
}

// tokenUsers are the users of all tenants that have a token.
func (s upState) tokenUsers(first string) (list []tenantUser) {
	for _, t := range s.tenants(first) {
		for _, m := range s.usersOf(t) {
			if slices.Contains(tokenRoles, m.Role) {
				list = append(list, m)
			}
		}
	}
	return list
}

func (s upState) userNames(first string) (names []string) {
	for _, r := range serviceRoles {
		names = append(names, string(r))
	}
	for _, t := range s.tenants(first) {
		for _, m := range s.usersOf(t) {
			names = append(names, m.Name)
		}
	}
	return names
}

// usualUser is the name of the user that each tenant has of a role; a runtime's is also its publisher token.
func usualUser(tenant string, r streams.Role) string {
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

func (s upState) tenantConfigs(first string) (list []streams.Tenant) {
	for _, name := range s.tenants(first) {
		t := streams.Tenant{Name: name}
		for _, m := range s.usersOf(name) {
			t.Users = append(t.Users, s.userOf(m))
		}
		list = append(list, t)
	}
	return list
}

// readyRoles returns the users in a ready file, by role.
func (s upState) readyRoles(tenant string) map[string]streams.User {
	out := map[string]streams.User{target.Operator: s.serviceUser(string(streams.RoleOperator))}
	for _, r := range tokenRoles { // the gateway's password is the gateway's alone
		out[string(r)] = s.usual(tenant, r)
	}
	return out
}

// usual is the user that a tenant has of a role, with its password.
func (s upState) usual(tenant string, r streams.Role) streams.User {
	return s.userOf(tenantUser{tenant, usualUser(tenant, r), r})
}

// userOf is a tenant's user with its password.
func (s upState) userOf(m tenantUser) streams.User {
	return streams.User{Name: m.Name, Password: s.Passwords[m.Name], Role: m.Role}
}

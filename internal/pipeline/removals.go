package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/streams"
)

// A removal is one write of the state file: it takes the user's password and token away and notes the
// removal. What follows (the server's configuration, the revocation of tokens) repeats until the generation
// is in force, after a restart, too, so a removal is never half done for long.

// removal is a user that was removed. A user of the same name that is added later has other credentials.
type removal struct {
	tenantUser
	Generation int `json:"generation"` // of the state without the user
}

// Removed says what a command has removed.
type Removed struct {
	Tenant  string   `json:"tenant"`
	Users   []string `json:"users"`
	Already bool     `json:"already"` // by an earlier command
}

// RemoveUser removes a user that was added to a tenant of a running pipeline. It returns once the server has
// closed the user's connections and the tenant's gateway refuses its tokens. What the user wrote stays. To
// remove a user again is no error.
func RemoveUser(ctx context.Context, up target.Ready, tenant, name string) (out Removed, err error) {
	out = Removed{Tenant: tenant, Users: []string{name}}
	_, _, err = change(ctx, up, func(s *upState) (bool, error) {
		at := slices.IndexFunc(s.Members, func(m tenantUser) bool { return m.Tenant == tenant && m.Name == name })
		if at < 0 {
			out.Already = true
			return false, s.whyNoMember(up.Tenant, tenant, name)
		}
		s.remove(s.Members[at])
		return true, nil
	})
	return out, err
}

// RemoveTenant removes a tenant that was added to a running pipeline, with all its users and its gateway. What
// they wrote stays. To remove a tenant again is no error.
func RemoveTenant(ctx context.Context, up target.Ready, name string) (out Removed, err error) {
	out = Removed{Tenant: name}
	_, _, err = change(ctx, up, func(s *upState) (bool, error) {
		switch {
		case name == up.Tenant:
			return false, fmt.Errorf("%w: %.60q is the tenant of `countersign up` itself; start `up --tenant` with another one", ErrMember, name)
		case slices.Contains(s.Tenants, name):
			for _, m := range s.usersOf(name) {
				s.remove(m)
				out.Users = append(out.Users, m.Name)
			}
			s.Tenants = slices.DeleteFunc(s.Tenants, func(t string) bool { return t == name })
			return true, nil
		case !slices.ContainsFunc(s.Removed, func(r removal) bool { return r.Tenant == name && r.Role == streams.RoleGateway }):
			return false, fmt.Errorf("%w: there is no tenant %.60q", ErrMember, name)
		}
		out.Already, out.Users = true, s.removedOf(name)
		return false, nil
	})
	return out, err
}

// whyNoMember says why a user cannot be removed; nil if it was removed before.
func (s *upState) whyNoMember(first, tenant, name string) error {
	for _, t := range s.tenants(first) {
		for _, m := range s.usersOf(t) {
			switch {
			case m.Name != name:
			case t != tenant:
				return fmt.Errorf("%w: the user %.64q is of the tenant %.60q (--tenant)", ErrMember, name, t)
			case t == first:
				return fmt.Errorf("%w: the user %.64q belongs to `countersign up` itself", ErrMember, name)
			default:
				return fmt.Errorf("%w: the user %.64q came with its tenant and goes with it (countersign tenant remove)", ErrMember, name)
			}
		}
	}
	if slices.Contains(s.removedOf(tenant), name) {
		return nil
	}
	return fmt.Errorf("%w: the tenant %.60q has no user %.64q", ErrMember, tenant, name)
}

// removedOf are the removed users of a tenant that are not there again.
func (s *upState) removedOf(tenant string) (names []string) {
	for _, r := range s.Removed {
		if r.Tenant == tenant {
			names = append(names, r.Name)
		}
	}
	return names
}

// remove takes a user and its credentials out of a state that has its next generation already.
func (s *upState) remove(m tenantUser) {
	s.Members = slices.DeleteFunc(s.Members, m.isSame)
	s.Removed = slices.DeleteFunc(s.Removed, func(r removal) bool { return m.isSame(r.tenantUser) })
	s.Removed = append(s.Removed, removal{m, s.Generation})
	delete(s.Passwords, m.Name)
	delete(s.Tokens, m.Name)
}

// notedGeneration is the generation that was in force when the pipeline last ran: the changes after it may be
// half done.
func (p *Pipeline) notedGeneration() int {
	at := inForce{}
	text, err := os.ReadFile(filepath.Join(p.opt.DataDir, inForceFile))
	if err != nil || json.Unmarshal(text, &at) != nil {
		return 0
	}
	return at.Generation
}

// endRemoved revokes the tokens of the users that were removed after a generation, and ends their registrations.
// It may be repeated: tokens that a user of the same name has got since stay.
func (p *Pipeline) endRemoved(ctx context.Context, since int) error {
	state := p.currentState()
	if !slices.ContainsFunc(state.Removed, func(r removal) bool { return r.Generation > since }) {
		return nil
	}
	nc, js, err := p.connectAs(ctx, streams.RoleOperator, "countersign removals")
	if err != nil {
		return err
	}
	defer nc.Close()
	for _, r := range state.Removed {
		if r.Generation <= since || !slices.Contains(tokenRoles, r.Role) {
			continue
		}
		kept, _ := token.IDOf(state.Tokens[r.Name])
		if err := revokeTokens(ctx, js, r.tenantUser, kept); err != nil {
			return fmt.Errorf("revoking the tokens of %s: %w", r.Name, err)
		}
		if slices.ContainsFunc(state.tokenUsers(p.opt.Tenant), func(m tenantUser) bool { return m.isSame(r.tenantUser) && m.speaks() }) {
			continue // there again
		}
		if err := endRegistration(ctx, js, r.tenantUser); err != nil {
			return fmt.Errorf("ending the registration of %s: %w", r.Name, err)
		}
	}
	return nil
}

// revokeTokens revokes the tokens and mappings of a user but for the one with the id kept.
func revokeTokens(ctx context.Context, js jetstream.JetStream, m tenantUser, kept string) error {
	kv, err := streams.OpenBucket(ctx, js, streams.BucketTokens)
	if err != nil {
		return err
	}
	records, err := streams.KVUnder(ctx, js, streams.BucketTokens, token.Prefix(m.Tenant))
	if err != nil {
		return err
	}
	for id, value := range records {
		r, err := token.Decode(value)
		if err != nil || r.User != m.Name || r.RevokedAt != nil || id == kept {
			continue
		}
		if err := revokeToken(ctx, js, kv, token.Key(m.Tenant, id)); err != nil {
			return err
		}
	}
	return nil
}

// revokeToken revokes a token by its key. A token that an operator changes at the same time is an error, and
// tried again.
func revokeToken(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, key string) error {
	e, err := streams.KVLast(ctx, js, streams.BucketTokens, key)
	if err != nil || e == nil || e.Deleted {
		return err
	}
	r, err := token.Decode(e.Value)
	if err != nil || r.RevokedAt != nil { // a record that cannot be used lets nobody in
		return nil
	}
	now := time.Now().UTC().Truncate(time.Second)
	r.RevokedAt = &now
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = kv.Update(ctx, key, body, e.Revision)
	return err
}

// endRegistration removes the registration that the pipeline has made of a user. One that an operator has put in
// its place stays.
func endRegistration(ctx context.Context, js jetstream.JetStream, m tenantUser) error {
	key, made, err := registrationOf(m)
	if err != nil {
		return err
	}
	last, err := streams.KVLast(ctx, js, streams.BucketPublishers, key)
	if err != nil || last == nil || !bytes.Equal(last.Value, made) {
		return err
	}
	kv, err := streams.OpenBucket(ctx, js, streams.BucketPublishers)
	if err != nil {
		return err
	}
	return kv.Delete(ctx, key, jetstream.LastRevision(last.Revision))
}

// stopGateways stops the gateways of tenants that were removed.
func (p *Pipeline) stopGateways(ctx context.Context) {
	p.mu.Lock()
	gone := p.gateways.surplus(p.state.tenants(p.opt.Tenant))
	p.mu.Unlock()
	for _, tenant := range gone {
		name := p.gateways.process(tenant)
		if err := p.sup.StopChildren(ctx, name); err != nil {
			p.opt.Log.Warn().Err(err).Msg("the gateway of a removed tenant was killed")
		}
		p.mu.Lock()
		delete(p.gateways.urls, tenant)
		delete(p.health, name)
		delete(p.ready.PIDs, name)
		p.mu.Unlock()
		if p.opt.OnChange != nil {
			p.opt.OnChange(p.Ready)
		}
	}
}

// noteEnding notes the tokens of an earlier state that the state has no more; the caller holds mu.
func (p *Pipeline) noteEnding(earlier upState) {
	for _, r := range p.state.Removed {
		if text := earlier.Tokens[r.Name]; text != "" && p.state.Tokens[r.Name] != text {
			p.ending[text] = r.Tenant
		}
	}
}

// awaitRefused waits until the gateways refuse the tokens that were revoked: they look for changes every second.
func (p *Pipeline) awaitRefused(ctx context.Context) error {
	p.mu.Lock()
	ending, gateways := maps.Clone(p.ending), maps.Clone(p.gateways.urls)
	p.mu.Unlock()
	for text, tenant := range ending {
		for gateways[tenant] != "" && isLetIn(ctx, gateways[tenant], text) {
			if retry.Sleep(ctx, lookEvery/4) != nil {
				return errors.New("a gateway still takes the token of a removed user")
			}
		}
		p.mu.Lock()
		delete(p.ending, text)
		p.mu.Unlock()
	}
	return nil
}

// isLetIn reports whether a gateway takes a token, as far as is known when ctx ends. One that does not run takes
// none.
func isLetIn(ctx context.Context, gateway, text string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/v1/caller", nil)
	if err != nil {
		return false
	}
	r.Header.Set("Authorization", "Bearer "+text)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return ctx.Err() != nil
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK || res.StatusCode == http.StatusTooManyRequests
}

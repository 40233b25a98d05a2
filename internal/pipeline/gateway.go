package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/streams"
)

// The tokens of a data directory live tokenLife. At a start, and every checkEvery from then on, those
// with less than tokenLeft get as much again, and those that were revoked are noted in the state file.
const (
	tokenLife  = 365 * 24 * time.Hour
	tokenLeft  = 30 * 24 * time.Hour
	checkEvery = time.Minute
)

// manifestKeyFile signs the AAEP manifests of the gateways.
const manifestKeyFile = "manifest.key"

// newToken makes the text of a token.
func newToken() (string, error) {
	random := make([]byte, token.RandomBytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	text, _, err := token.New(random)
	return text, err
}

// prepareGateway registers the tenants' runtimes and subscribers as reached through their gateways, too,
// and stores the hashes of the tokens, before any service decides. What an operator has changed stays.
func (p *Pipeline) prepareGateway(ctx context.Context) error {
	p.checked = time.Now()
	nc, js, err := p.connectAs(ctx, streams.RoleOperator, "countersign tokens")
	if err != nil {
		return err
	}
	defer nc.Close()
	state, revoked := p.currentState(), map[string]time.Time{}
	for _, m := range state.tokenUsers(p.opt.Tenant) {
		if err = prepareUser(ctx, js, m, state, revoked); err != nil {
			break
		}
	}
	if len(revoked) > 0 {
		err = errors.Join(err, p.noteRevoked(ctx, revoked))
	}
	return err
}

// prepareUser registers a user that speaks as reached through its gateway, and stores the hash of its token.
func prepareUser(ctx context.Context, js jetstream.JetStream, m tenantUser, state upState, revoked map[string]time.Time) error {
	if m.speaks() {
		isNew, err := hasNoToken(ctx, js, m, state)
		if err == nil {
			err = registerSpeaker(ctx, js, m, isNew)
		}
		if err != nil {
			return fmt.Errorf("registering %s as reached through the gateway: %w", m.Name, err)
		}
	}
	if err := storeToken(ctx, js, m, state, revoked); err != nil {
		return fmt.Errorf("storing the token of %s: %w", m.Name, err)
	}
	return nil
}

// noteRevoked adds revoked tokens to the state file, by id: the bucket that says so goes with the log.
func (p *Pipeline) noteRevoked(ctx context.Context, revoked map[string]time.Time) error {
	path := p.currentState().path
	unlock, err := lockState(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(path) // a command may have changed it
	if err != nil {
		return err
	}
	if s.RevokedTokens == nil {
		s.RevokedTokens = map[string]time.Time{}
	}
	maps.Copy(s.RevokedTokens, revoked)
	if err := s.write(); err != nil {
		return err
	}
	p.mu.Lock()
	p.state.RevokedTokens = s.RevokedTokens
	p.mu.Unlock()
	return nil
}

// checkTokens prepares the gateway again when that was long ago.
func (p *Pipeline) checkTokens(ctx context.Context) {
	if !slices.Contains(p.opt.Services, procGateway) || time.Since(p.checked) < checkEvery {
		return
	}
	if err := p.prepareGateway(ctx); err != nil && ctx.Err() == nil {
		p.opt.Log.Warn().Err(err).Msg("the tokens of the users could not all be checked: one that ends soon may not be renewed, and one that was revoked not be noted. It is tried again in a minute")
	}
}

// registerSpeaker puts the registration of a user that puts events on the log, a subscriber its AAEP
// replies, once: an operator may remove it. A new user may have the name of one that was removed.
func registerSpeaker(ctx context.Context, js jetstream.JetStream, m tenantUser, isNew bool) error {
	key, doc, err := registrationOf(m)
	if err != nil {
		return err
	}
	return putOnce(ctx, js, streams.BucketPublishers, key, doc, func(e *streams.KVEntry) bool { return isNew && e.Deleted })
}

// registrationOf is the registration that the pipeline makes of a user, and its key.
func registrationOf(m tenantUser) (key string, doc []byte, err error) {
	doc, err = json.Marshal(map[string]string{
		"schema": publisher.RegistrationSchema, "publisher": m.Name, "gateway": usualUser(m.Tenant, streams.RoleGateway),
		"description": "Made by countersign up: the user may also come through the gateway.",
	})
	if err != nil {
		return "", nil, err
	}
	parsed, err := publisher.Parse(doc)
	return publisher.Key(m.Tenant, parsed.Name), doc, err
}

// storeToken stores the hash of a user's token, or renews its expiry. A revoked token stays revoked, also in a
// bucket that does not know it. One that the state does not have as revoked yet is added to revoked.
func storeToken(ctx context.Context, js jetstream.JetStream, m tenantUser, state upState, revoked map[string]time.Time) error {
	text := state.Tokens[m.Name]
	id, ok := token.IDOf(text)
	if !ok {
		return fmt.Errorf("%s holds no usable token of %s", state.path, m.Name)
	}
	now := time.Now().UTC().Truncate(time.Second)
	record := token.Record{Hash: token.Hash(text), Tenant: m.Tenant, User: m.Name, Role: string(m.Role), CreatedAt: now, ExpiresAt: now.Add(tokenLife)}
	at, noted := state.RevokedTokens[id]
	if noted {
		record.RevokedAt = &at
	}
	body, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return putOnce(ctx, js, streams.BucketTokens, token.Key(m.Tenant, id), body, func(e *streams.KVEntry) bool {
		held, err := token.Decode(e.Value)
		switch {
		case e.Deleted:
			held.RevokedAt = &now
		case err != nil:
			return false
		}
		if held.RevokedAt == nil {
			return noted || held.ExpiresAt.Sub(now) < tokenLeft
		}
		if !noted {
			revoked[id] = *held.RevokedAt
		}
		return false
	})
}

// hasNoToken reports whether the token of a user was never stored: the user is a new one.
func hasNoToken(ctx context.Context, js jetstream.JetStream, m tenantUser, state upState) (bool, error) {
	id, _ := token.IDOf(state.Tokens[m.Name])
	last, err := streams.KVLast(ctx, js, streams.BucketTokens, token.Key(m.Tenant, id))
	return last == nil, err
}

// putOnce writes a key that never existed. It replaces an existing one if replace says so of the newest revision.
func putOnce(ctx context.Context, js jetstream.JetStream, bucket, key string, value []byte, replace func(*streams.KVEntry) bool) error {
	last, err := streams.KVLast(ctx, js, bucket, key)
	if err != nil || last != nil && !replace(last) {
		return err
	}
	kv, err := streams.OpenBucket(ctx, js, bucket)
	if err != nil {
		return err
	}
	revision := uint64(0)
	if last != nil {
		revision = last.Revision
	}
	_, err = kv.Update(ctx, key, value, revision)
	return err
}

// tenantGateways are the gateways, one for each tenant, by their addresses.
type tenantGateways struct {
	first string            // the tenant that the pipeline was made for
	port  int               // of its gateway; 0 means a free one
	keys  string            // directory of the manifest key
	urls  map[string]string // by tenant
}

// process is the name of the process that is a tenant's gateway.
func (g *tenantGateways) process(tenant string) string {
	if tenant == g.first {
		return procGateway
	}
	return procGateway + "-" + tenant
}

// env is the part of the environment of a tenant's gateway. It listens on loopback: it has no
// certificate.
func (g *tenantGateways) env(tenant string) []string {
	port := "0"
	if tenant == g.first {
		port = strconv.Itoa(g.port)
	}
	if u, err := url.Parse(g.urls[tenant]); err == nil && u.Port() != "" {
		port = u.Port() // a restarted gateway must have the same address
	}
	return []string{"COUNTERSIGN_TENANT=" + tenant, "COUNTERSIGN_GATEWAY_LISTEN=" + net.JoinHostPort(streams.DefaultHost, port),
		"COUNTERSIGN_GATEWAY_TLS_CERT=", "COUNTERSIGN_GATEWAY_TLS_KEY=", "COUNTERSIGN_GATEWAY_CLIENT_CA=",
		"COUNTERSIGN_GATEWAY_MANIFEST_KEY=" + filepath.Join(g.keys, manifestKeyFile)}
}

// missing are those of the tenants whose gateway never ran.
func (g *tenantGateways) missing(tenants []string) (list []string) {
	for _, tenant := range tenants {
		if g.urls[tenant] == "" {
			list = append(list, tenant)
		}
	}
	return list
}

// surplus are the tenants with a gateway that are none of these.
func (g *tenantGateways) surplus(tenants []string) (list []string) {
	for tenant := range g.urls {
		if !slices.Contains(tenants, tenant) {
			list = append(list, tenant)
		}
	}
	return list
}

package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/streams"
)

// procGateway is the gateway's name among the services.
const procGateway = "gateway"

// The tokens of a data directory live tokenLife from a start on, and are renewed at a start when less
// than tokenLeft is left.
const (
	tokenLife = 365 * 24 * time.Hour
	tokenLeft = 30 * 24 * time.Hour
)

// newToken makes the text of a token.
func newToken() (string, error) {
	random := make([]byte, token.RandomBytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	text, _, err := token.New(random)
	return text, err
}

// prepareGateway registers the tenant's runtime as reached through the gateway, too, and stores the
// hashes of the tokens, before any service decides. What an operator has changed stays.
func (p *Pipeline) prepareGateway(ctx context.Context) error {
	nc, js, err := p.connectAs(ctx, streams.RoleOperator, "countersign tokens")
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := p.registerRuntime(ctx, js); err != nil {
		return fmt.Errorf("registering the runtime of the gateway: %w", err)
	}
	for _, r := range tokenRoles {
		if err := p.storeToken(ctx, js, r); err != nil {
			return fmt.Errorf("storing the token of %s: %w", r, err)
		}
	}
	return nil
}

// registerRuntime puts the registration once: an operator may remove it.
func (p *Pipeline) registerRuntime(ctx context.Context, js jetstream.JetStream) error {
	name := tenantUser(p.opt.Tenant, streams.RoleRuntime)
	doc, err := json.Marshal(map[string]string{
		"schema": publisher.RegistrationSchema, "publisher": name, "gateway": tenantUser(p.opt.Tenant, streams.RoleGateway),
		"description": "Made by countersign up: the runtime may also come through the gateway.",
	})
	if err != nil {
		return err
	}
	parsed, err := publisher.Parse(doc)
	if err != nil {
		return err
	}
	key := publisher.Key(p.opt.Tenant, parsed.Name)
	return putOnce(ctx, js, streams.BucketPublishers, key, doc, func(*streams.KVEntry) bool { return false })
}

// storeToken stores the hash of a role's token, or renews its expiry. A revoked token stays revoked.
func (p *Pipeline) storeToken(ctx context.Context, js jetstream.JetStream, r streams.Role) error {
	user := tenantUser(p.opt.Tenant, r)
	text := p.state.Tokens[user]
	id, ok := token.IDOf(text)
	if !ok {
		return fmt.Errorf("%s holds no usable token of %s", p.state.path, user)
	}
	now := time.Now().UTC().Truncate(time.Second)
	body, err := json.Marshal(token.Record{Hash: token.Hash(text), Tenant: p.opt.Tenant, User: user, Role: string(r), CreatedAt: now, ExpiresAt: now.Add(tokenLife)})
	if err != nil {
		return err
	}
	return putOnce(ctx, js, streams.BucketTokens, token.Key(p.opt.Tenant, id), body, func(e *streams.KVEntry) bool {
		held, err := token.Decode(e.Value)
		return err == nil && !e.Deleted && held.RevokedAt == nil && held.ExpiresAt.Sub(now) < tokenLeft
	})
}

// putOnce writes a key that never existed, or whose newest revision is to be replaced.
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

// gatewayEnv is the gateway's part of a service's environment; the caller holds mu. It listens on
// loopback: it has no certificate.
func (p *Pipeline) gatewayEnv() []string {
	return []string{"COUNTERSIGN_TENANT=" + p.opt.Tenant, "COUNTERSIGN_GATEWAY_LISTEN=" + net.JoinHostPort(streams.DefaultHost, p.gatewayPort),
		"COUNTERSIGN_GATEWAY_TLS_CERT=", "COUNTERSIGN_GATEWAY_TLS_KEY=", "COUNTERSIGN_GATEWAY_CLIENT_CA="}
}

// noteGateway keeps the gateway's address, which a restarted gateway must have again; the caller
// holds mu.
func (p *Pipeline) noteGateway(at string) {
	if u, err := url.Parse(at); err == nil && at != "" {
		p.gatewayPort, p.ready.GatewayURL = u.Port(), at
	}
}

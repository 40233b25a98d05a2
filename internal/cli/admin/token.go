package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/publishercmd"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// TokenCmd is `countersign token`.
type TokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token and print it, once: only its hash is stored."`
	List   tokenListCmd   `cmd:"" help:"List the tokens of a tenant: id, user, role, expiry. No token is shown."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke a token. Gateways refuse it after about a second, within 15 if they cannot read the bucket."`
}

type tokenCreateCmd struct {
	target.Flags
	Role    string        `help:"runtime: asks and publishes as the publisher --for; subscriber: follows all outputs; reviewer: follows decisions and approvals." enum:"runtime,subscriber,reviewer" default:"runtime"`
	For     string        `help:"The user that the token stands for; of a runtime, its publisher." required:"" placeholder:"NAME"`
	Expires time.Duration `help:"How long the token is valid." default:"2160h"`
	Cert    *string       `name:"certificate-subject" help:"Make no token, but let in client certificates with this subject, written as in RFC 2253." placeholder:"CN=web1,O=Acme" xor:"proof"`
	Sub     *string       `name:"oidc-subject" help:"Make no token, but let in JWTs with this claim sub; needs --oidc-issuer." placeholder:"SUB" xor:"proof"`
	Issuer  *string       `name:"oidc-issuer" help:"Issuer of the JWTs of --oidc-subject, exactly as the claim iss has it." placeholder:"URL"`
	JSON    bool          `name:"json" help:"Print JSON."`
}

// tokenEntry is a token without its secret.
type tokenEntry struct {
	ID        string     `json:"id"`
	Tenant    string     `json:"tenant"`
	User      string     `json:"user"`
	Proof     string     `json:"proof,omitempty"`   // of a mapping: certificate or oidc
	Subject   string     `json:"subject,omitempty"` // of the certificate or the JWT that is let in; only when it is mapped
	Role      string     `json:"role"`
	Status    string     `json:"status"` // valid expired revoked unusable
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

func entryOf(id string, r token.Record, now time.Time) tokenEntry {
	status := "valid"
	switch {
	case r.Check() != nil:
		status = "unusable"
	case r.RevokedAt != nil:
		status = "revoked"
	case !r.IsValid(now):
		status = "expired"
	}
	return tokenEntry{ID: id, Tenant: r.Tenant, User: r.User, Proof: r.Proof, Role: r.Role, Status: status, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt}
}

func (c *tokenCreateCmd) Run(ctx context.Context, io ui.Stdio) error {
	subject, proof, err := c.subject()
	if err != nil {
		return ui.UsageError{Err: err}
	}
	b, err := system.OpenBucket(ctx, c.Flags, streams.BucketTokens)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	random := make([]byte, token.RandomBytes)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	text, id, err := token.New(random)
	if err != nil {
		return err
	}
	if proof != "" {
		if err := refuseSecondMapping(ctx, b, subject); err != nil {
			return err
		}
		text = subject
	}
	now := time.Now().UTC().Truncate(time.Second)
	r := token.Record{Hash: token.Hash(text), Proof: proof, Tenant: b.Tenant, User: c.For, Role: c.Role, CreatedAt: now, ExpiresAt: now.Add(c.Expires)}
	if err := r.Check(); err != nil {
		return ui.UsageError{Err: err}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := b.KV.Create(ctx, token.Key(b.Tenant, id), body); err != nil {
		return fmt.Errorf("writing to the tokens bucket: %w", err)
	}
	b.NoteUnknownTenant(ctx, io)
	if err := warnUnreached(ctx, io, b, r); err != nil {
		return err
	}
	if proof != "" {
		return c.reportMapping(io, entryOf(id, r, now), subject)
	}
	if c.JSON {
		return ui.WriteJSON(io, struct {
			Token string `json:"token"`
			tokenEntry
		}{text, entryOf(id, r, now)})
	}
	fmt.Fprintf(io.Err, "token %s of %s %s, valid until %s; it is not shown again\n", id, r.Role, r.User, r.ExpiresAt.Format(time.RFC3339))
	_, err = fmt.Fprintln(io.Out, text)
	return err
}

// warnUnreached warns if no gateway may speak for a runtime's publisher: its requests would be denied.
func warnUnreached(ctx context.Context, io ui.Stdio, b system.Bucket, r token.Record) error {
	if r.Role != token.Runtime {
		return nil
	}
	through, err := (&publishercmd.PublisherBucket{Bucket: b}).GatewayOf(ctx, r.User)
	if err == nil && through == "" {
		fmt.Fprintf(io.Err, "warning: the publisher %s is not registered as reached through a gateway, so its requests are denied: put a registration with its \"gateway\" (countersign publisher put)\n", ui.Clean(r.User, 64))
	}
	return err
}

type tokenListCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *tokenListCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := system.OpenBucket(ctx, c.Flags, streams.BucketTokens)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	records, err := streams.KVUnder(ctx, b.JS, streams.BucketTokens, token.Prefix(b.Tenant))
	if err != nil {
		return err
	}
	list := []tokenEntry{}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		r, _ := token.Decode(records[id])
		list = append(list, entryOf(id, r, time.Now()))
	}
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(io.Out, "tenant %s has no tokens (countersign token create)\n", ui.Clean(b.Tenant, 64))
	}
	for _, t := range list {
		by := ""
		if t.Proof != "" {
			by = "  " + t.Proof
		}
		fmt.Fprintf(io.Out, "%s  %s %s %s until %s%s\n", ui.Clean(t.ID, 40), ui.Fill(t.Status, 8), ui.Fill(t.Role, 10), ui.Fill(ui.Clean(t.User, 64), 24), t.ExpiresAt.Format(time.RFC3339), by)
	}
	return nil
}

type tokenRevokeCmd struct {
	target.Flags
	JSON bool   `name:"json" help:"Print JSON."`
	ID   string `arg:"" help:"The token's id, as 'token list' shows it."`
}

func (c *tokenRevokeCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := system.OpenBucket(ctx, c.Flags, streams.BucketTokens)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if !token.IsID(c.ID) {
		return ui.UsageError{Err: errors.New("that is not the id of a token: 20 hexadecimal digits (token list); never give the token itself")}
	}
	key := token.Key(b.Tenant, c.ID)
	last, err := streams.KVLast(ctx, b.JS, streams.BucketTokens, key)
	if err != nil {
		return err
	}
	if last == nil || last.Deleted {
		return fmt.Errorf("tenant %s has no token %s (token list)", ui.Clean(b.Tenant, 64), c.ID)
	}
	r, err := token.Decode(last.Value)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	if r.RevokedAt == nil {
		r.RevokedAt = &now
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := b.KV.Update(ctx, key, body, last.Revision); streams.IsKVConflict(err) {
			return errors.New("another operator changed the token at the same time; look at it (token list) and try again")
		} else if err != nil {
			return fmt.Errorf("writing to the tokens bucket: %w", err)
		}
	}
	if c.JSON {
		return ui.WriteJSON(io, entryOf(c.ID, r, now))
	}
	_, err = fmt.Fprintf(io.Out, "token %s of %s %s is revoked\n", c.ID, r.Role, ui.Clean(r.User, 64))
	return err
}

package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// subject is the subject that is mapped instead of making a token, and what proves it; "" for a token. A
// flag that is there and empty makes no token.
func (c *tokenCreateCmd) subject() (subject, proof string, err error) {
	switch {
	case (c.Sub == nil) != (c.Issuer == nil):
		return "", "", errors.New("--oidc-subject and --oidc-issuer belong together")
	case c.Cert != nil:
		subject = token.CertificateNamed(*c.Cert)
	case c.Sub != nil:
		if subject, err = token.OIDCSubject(*c.Issuer, *c.Sub); err != nil {
			return "", "", err
		}
	default:
		return "", "", nil
	}
	proof, err = token.ProofOf(subject)
	return subject, proof, err
}

// refuseSecondMapping refuses a subject that a valid mapping has: a gateway lets in neither of two.
func refuseSecondMapping(ctx context.Context, b system.Bucket, subject string) error {
	records, err := streams.KVUnder(ctx, b.JS, streams.BucketTokens, token.Prefix(b.Tenant))
	if err != nil {
		return err
	}
	for id, value := range records {
		if r, err := token.Decode(value); err == nil && r.Proof != "" && r.Hash == token.Hash(subject) && r.IsValid(time.Now()) {
			return fmt.Errorf("the subject is mapped already, to %s %s: revoke %s first (countersign token revoke)", r.Role, ui.Clean(r.User, 64), ui.Clean(id, 40))
		}
	}
	return nil
}

func (c *tokenCreateCmd) reportMapping(io ui.Stdio, e tokenEntry, subject string) error {
	e.Subject = subject
	if c.JSON {
		return ui.WriteJSON(io, e)
	}
	_, err := fmt.Fprintf(io.Out, "%s  %s lets in %s %s until %s\n", e.ID, ui.Clean(e.Subject, 200), e.Role, e.User, e.ExpiresAt.Format(time.RFC3339))
	return err
}

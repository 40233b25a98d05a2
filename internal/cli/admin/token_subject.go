package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// subject is the subject that is mapped instead of making a token; "" for a token.
func (c *tokenCreateCmd) subject() (string, error) {
	switch {
	case (c.Sub == "") != (c.Issuer == ""):
		return "", errors.New("--oidc-subject and --oidc-issuer belong together")
	case c.Cert != "":
		return token.CertificateNamed(c.Cert), nil
	case c.Sub != "":
		return token.OIDCSubject(c.Issuer, c.Sub)
	}
	return "", nil
}

// refuseSecondMapping refuses a subject that a valid mapping has: a gateway lets in neither of two.
func refuseSecondMapping(ctx context.Context, b system.Bucket, subject string) error {
	keys, err := streams.KVKeys(ctx, b.JS, streams.BucketTokens)
	if err != nil {
		return err
	}
	for _, key := range keys {
		id, ours := strings.CutPrefix(key, token.Prefix(b.Tenant))
		if !ours {
			continue
		}
		e, err := streams.KVLast(ctx, b.JS, streams.BucketTokens, key)
		if err != nil {
			return err
		}
		if e == nil || e.Deleted {
			continue
		}
		if r, err := token.Decode(e.Value); err == nil && r.Subject == subject && r.IsValid(time.Now()) {
			return fmt.Errorf("the subject is mapped already, to %s %s: revoke %s first (countersign token revoke)", r.Role, ui.Clean(r.User, 64), ui.Clean(id, 40))
		}
	}
	return nil
}

func (c *tokenCreateCmd) reportMapping(io ui.Stdio, e tokenEntry) error {
	if c.JSON {
		return ui.WriteJSON(io, e)
	}
	_, err := fmt.Fprintf(io.Out, "%s  %s lets in %s %s until %s\n", e.ID, ui.Clean(e.Subject, 200), e.Role, e.User, e.ExpiresAt.Format(time.RFC3339))
	return err
}

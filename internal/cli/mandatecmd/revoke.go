package mandatecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

type mandateRevokeCmd struct {
	target.Flags
	authorFlag
	system.WaitFlag
	Hash   string `help:"The hash of the mandate to take back (default: of the one that is in force)." placeholder:"HASH"`
	Reason string `help:"Why; is kept with the revocation." required:"" placeholder:"TEXT"`
	JSON   bool   `name:"json" help:"Print the revocation as JSON."`
	ID     string `arg:"" help:"The mandate's id."`
}

func (c *mandateRevokeCmd) Run(ctx context.Context, io ui.Stdio) error {
	if strings.TrimSpace(c.Reason) == "" || len(c.Reason) > aump.MaxReason {
		return ui.UsageError{Err: fmt.Errorf("--reason must say why, in at most %d bytes", aump.MaxReason)}
	}
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	hash, err := b.named(ctx, c.ID, c.Hash)
	if err != nil {
		return err
	}
	r := mandate.Revocation{V: mandate.StoredVersion, ID: c.ID, Hash: hash, Reason: c.Reason, Author: c.name(), RevokedAt: events.At(time.Now())}
	key := mandate.RevocationKey(b.Tenant, c.ID, hash)
	last, err := streams.KVLast(ctx, b.JS, streams.BucketMandates, key)
	if err != nil {
		return err
	}
	revision := uint64(0)
	if last != nil {
		revision = last.Revision
	}
	switch before, err := b.revocation(ctx, c.ID, hash); {
	case err != nil:
		return err
	case before != nil:
		fmt.Fprintf(io.Err, "it was revoked before, by %s; the first reason stands\n", before.By)
		r = *before
	default:
		r.By = mandate.ByOperator
		if revision, err = b.write(ctx, key, r, revision); err != nil {
			return err
		}
	}
	if err := b.Confirm(ctx, c.WaitFlag, streams.BucketMandates, revision); err != nil {
		return err
	}
	if c.JSON {
		return ui.WriteJSON(io, r)
	}
	fmt.Fprintf(io.Out, "%s %s is revoked for good; a mandate with another hash may be put under its id\n", r.ID, r.Hash)
	return nil
}

// named is the hash that a command refers to: the given one, or that of the mandate in force.
func (b *MandateBucket) named(ctx context.Context, id, hash string) (string, error) {
	held, _, err := b.newest(ctx, id)
	if hash != "" {
		normal, ok := aump.NormaliseHash(hash)
		if !ok || !mandate.ValidID(id) {
			return "", ui.UsageError{Err: errors.New("--hash must be sha256- and 64 hex digits, and the id one of a mandate")}
		}
		return normal, nil
	}
	if err != nil {
		return "", err
	}
	if held == nil {
		return "", fmt.Errorf("tenant %s has no mandate %s; to revoke one that is not there, name it with --hash", b.Tenant, id)
	}
	return held.Hash, nil
}

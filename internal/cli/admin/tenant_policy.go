package admin

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// tenantPolicy is a kind of policy of which a tenant has one or none in force. Its methods are the
// commands that both kinds have.
type tenantPolicy[P interface{ ID() string }] struct {
	kind, bucket string
	key          func(tenant string) string
	parse        func(file string, text []byte) (P, error)
	describe     func(io ui.Stdio, p P)
	without      string // what applies to a tenant that has none
}

var (
	redactionPolicy = tenantPolicy[*redaction.Policy]{kind: "redaction", bucket: streams.BucketRedaction, key: events.RuleKey,
		parse: redaction.Parse, describe: func(ui.Stdio, *redaction.Policy) {}, without: "the built-in rules apply"}
	retentionPolicy = tenantPolicy[*retention.Policy]{kind: "retention", bucket: streams.BucketRetention, key: retention.PolicyKey,
		parse: retention.Parse, describe: printClasses, without: "everything is kept"}
)

// read reads a policy from a file.
func (k tenantPolicy[P]) read(io ui.Stdio, file string) (p P, text []byte, err error) {
	if text, err = ui.ReadInput(io, file); err == nil {
		p, err = k.parse(file, text)
	}
	return p, text, err
}

func (k tenantPolicy[P]) lint(io ui.Stdio, file string) error {
	p, _, err := k.read(io, file)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%s is a %s policy: %s\n", file, k.kind, p.ID())
	k.describe(io, p)
	return nil
}

func (k tenantPolicy[P]) push(ctx context.Context, io ui.Stdio, f target.Flags, file string) error {
	p, text, err := k.read(io, file)
	if err != nil {
		return err
	}
	b, err := system.OpenBucket(ctx, f, k.bucket)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	revision, err := b.KV.Put(ctx, k.key(b.Tenant), text)
	if err != nil {
		return fmt.Errorf("pushing the %s policy of tenant %s: %w", k.kind, ui.Clean(b.Tenant, 64), err)
	}
	fmt.Fprintf(io.Out, "tenant %s: %s policy %s in force, revision %d\n", ui.Clean(b.Tenant, 64), k.kind, p.ID(), revision)
	b.NoteUnknownTenant(ctx, io)
	k.describe(io, p)
	return nil
}

func (k tenantPolicy[P]) remove(ctx context.Context, io ui.Stdio, f target.Flags) error {
	b, err := system.OpenBucket(ctx, f, k.bucket)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if err := b.KV.Delete(ctx, k.key(b.Tenant)); err != nil {
		return fmt.Errorf("removing the %s policy of tenant %s: %w", k.kind, ui.Clean(b.Tenant, 64), err)
	}
	fmt.Fprintf(io.Out, "tenant %s: %s\n", ui.Clean(b.Tenant, 64), k.without)
	return nil
}

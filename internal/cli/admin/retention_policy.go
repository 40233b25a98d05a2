package admin

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

type retentionLintCmd struct {
	File string `arg:"" help:"The policy (YAML)."`
}

func (c *retentionLintCmd) Run(io ui.Stdio) error {
	p, _, err := readRetention(io, c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%s is a retention policy: %s\n", c.File, p.ID())
	printClasses(io, p)
	return nil
}

// printClasses prints what is stored of messages in evidence, unless it is everything, and for
// how long, unless it is for ever.
func printClasses(io ui.Stdio, p *retention.Policy) {
	for _, r := range p.EvidenceRules() {
		kept := "for " + r.Period + " after their newest record"
		if r.Period == retention.Ever {
			kept = "for ever"
		}
		fmt.Fprintf(io.Out, "  %s: texts of evidence are kept %s\n", sessionsOf(r.Match), kept)
	}
	if p.StrictestClass() == retention.FullTranscript {
		return
	}
	for _, r := range p.ClassRules() {
		fmt.Fprintf(io.Out, "  %s: %s in the evidence\n", sessionsOf(r.Match), r.Class)
	}
}

func sessionsOf(match string) string {
	if match == "" {
		return "all other sessions"
	}
	return "sessions " + ui.Clean(match, 64)
}

func readRetention(io ui.Stdio, file string) (*retention.Policy, []byte, error) {
	text, err := ui.ReadInput(io, file)
	if err != nil {
		return nil, nil, err
	}
	p, err := retention.Parse(file, text)
	return p, text, err
}

type retentionPushCmd struct {
	target.Flags
	File string `arg:"" help:"The policy (YAML); - for standard input."`
}

func (c *retentionPushCmd) Run(ctx context.Context, io ui.Stdio) error {
	p, text, err := readRetention(io, c.File)
	if err != nil {
		return err
	}
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	revision, err := b.KV.Put(ctx, retention.PolicyKey(b.Tenant), text)
	if err != nil {
		return fmt.Errorf("pushing the retention policy of tenant %s: %w", ui.Clean(b.Tenant, 64), err)
	}
	fmt.Fprintf(io.Out, "tenant %s: retention policy %s in force, revision %d\n", ui.Clean(b.Tenant, 64), p.ID(), revision)
	b.NoteUnknownTenant(ctx, io)
	printClasses(io, p)
	return nil
}

type retentionRemoveCmd struct{ target.Flags }

func (c *retentionRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if err := b.KV.Delete(ctx, retention.PolicyKey(b.Tenant)); err != nil {
		return fmt.Errorf("removing the retention policy of tenant %s: %w", ui.Clean(b.Tenant, 64), err)
	}
	fmt.Fprintf(io.Out, "tenant %s: everything is kept\n", ui.Clean(b.Tenant, 64))
	return nil
}

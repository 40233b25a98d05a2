package main

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/evidence/retention"
)

type retentionLintCmd struct {
	File string `arg:"" help:"The policy (YAML)."`
}

func (c *retentionLintCmd) Run(io stdio) error {
	p, _, err := readRetention(io, c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%s is a retention policy: %s\n", c.File, p.ID())
	printClasses(io, p)
	return nil
}

// printClasses says what is stored of messages in evidence, unless it is everything,
// and for how long, unless that is for ever.
func printClasses(io stdio, p *retention.Policy) {
	for _, r := range p.EvidenceRules() {
		kept := "for " + r.Period + " after their newest record"
		if r.Period == retention.Ever {
			kept = "for ever"
		}
		fmt.Fprintf(io.out, "  %s: texts of evidence are kept %s\n", sessionsOf(r.Match), kept)
	}
	if p.StrictestClass() == retention.FullTranscript {
		return
	}
	for _, r := range p.ClassRules() {
		fmt.Fprintf(io.out, "  %s: %s in the evidence\n", sessionsOf(r.Match), r.Class)
	}
}

func sessionsOf(match string) string {
	if match == "" {
		return "all other sessions"
	}
	return "sessions " + clean(match, 64)
}

func readRetention(io stdio, file string) (*retention.Policy, []byte, error) {
	text, err := readInput(io, file)
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

func (c *retentionPushCmd) Run(ctx context.Context, io stdio) error {
	p, text, err := readRetention(io, c.File)
	if err != nil {
		return err
	}
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	revision, err := b.kv.Put(ctx, retention.PolicyKey(b.tenant), text)
	if err != nil {
		return fmt.Errorf("pushing the retention policy of tenant %s: %w", clean(b.tenant, 64), err)
	}
	fmt.Fprintf(io.out, "tenant %s: retention policy %s in force, revision %d\n", clean(b.tenant, 64), p.ID(), revision)
	b.noteStranger(ctx, io)
	printClasses(io, p)
	return nil
}

type retentionRemoveCmd struct{ target.Flags }

func (c *retentionRemoveCmd) Run(ctx context.Context, io stdio) error {
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	if err := b.kv.Delete(ctx, retention.PolicyKey(b.tenant)); err != nil {
		return fmt.Errorf("removing the retention policy of tenant %s: %w", clean(b.tenant, 64), err)
	}
	fmt.Fprintf(io.out, "tenant %s: everything is kept\n", clean(b.tenant, 64))
	return nil
}

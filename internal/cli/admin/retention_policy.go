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

func (c *retentionLintCmd) Run(io ui.Stdio) error { return retentionPolicy.lint(io, c.File) }

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

type retentionPushCmd struct {
	target.Flags
	File string `arg:"" help:"The policy (YAML); - for standard input."`
}

func (c *retentionPushCmd) Run(ctx context.Context, io ui.Stdio) error {
	return retentionPolicy.push(ctx, io, c.Flags, c.File)
}

type retentionRemoveCmd struct{ target.Flags }

func (c *retentionRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	return retentionPolicy.remove(ctx, io, c.Flags)
}

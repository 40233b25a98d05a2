package policycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/publishercmd"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

// signedBy holds the flags of every command that changes the policies in force.
type signedBy struct {
	system.WaitFlag
	Author  string `help:"Author of the change; goes into history and log as you give it (default: your user name)." env:"COUNTERSIGN_AUTHOR" placeholder:"NAME"`
	Message string `short:"m" help:"Why; goes into history and log." placeholder:"TEXT"`
	DryRun  bool   `help:"Show what would change, and change nothing."`
	Yes     bool   `short:"y" help:"Do not ask."`
	JSON    bool   `name:"json" help:"Print the result as JSON."`
}

type policyPushCmd struct {
	target.Flags
	signedBy
	Dir string `arg:"" help:"Directory of *.yaml files. Policies in force that are not in it are taken out of force."`
}

func (c *policyPushCmd) Run(ctx context.Context, io ui.Stdio) error {
	docs, set, err := LoadPolicies(c.Dir)
	if err != nil {
		return err
	}
	b, held, err := openInForce(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if held.HoldsExactly(docs) {
		err := c.report(io, pushReport{Revision: held.Revision, Policies: len(set.Names()), Digest: set.Digest()})
		return errors.Join(err, b.Confirm(ctx, c.WaitFlag, streams.BucketPolicies, held.Revision))
	}
	change := events.PolicySet{Author: system.AuthorName(c.Author), Message: c.Message, Documents: policybucket.EncodeDocuments(docs)}
	return c.apply(ctx, io, b, held, change, set)
}

// apply shows a change, asks, and puts it in force.
func (c *signedBy) apply(ctx context.Context, io ui.Stdio, b *PolicyBucket, held *policybucket.BucketState, change events.PolicySet, set *policy.Set) error {
	if _, err := change.Encode(); err != nil {
		return err
	}
	docs := policybucket.DecodeDocuments(change.Documents)
	findings := policy.Lint(docs)
	aliases, err := publishercmd.RegisteredAliases(ctx, b.JS)
	if err != nil {
		return fmt.Errorf("reading the tool catalogues: %w", err)
	}
	warnings := publishercmd.AliasWarnings(docs, aliases)
	if !c.JSON {
		for _, w := range warnings {
			fmt.Fprintln(io.Err, "warning:", w)
		}
		for _, finding := range findings { // shown before the question
			printFinding(ui.NewPrinter(io.Err), finding)
		}
		// The current set may be broken: then everything is shown as replaced.
		have, _ := held.Documents()
		printDifference(ui.NewPrinter(io.Err), compareDocuments(have, docs), c.DryRun)
	}
	r := pushReport{Changed: true, DryRun: c.DryRun, Policies: len(set.Names()), Digest: set.Digest(), RollbackTo: change.RollbackTo, Problems: findings, Warnings: warnings}
	if c.DryRun {
		return c.report(io, r)
	}
	if !c.Yes && !ui.Confirmed(io, fmt.Sprintf("put these %d policies in force?", r.Policies)) {
		return fmt.Errorf("nothing was changed")
	}
	if r.Revision, err = b.put(ctx, change, held.SetAt); err != nil {
		return err
	}
	if err := b.Confirm(ctx, c.WaitFlag, streams.BucketPolicies, r.Revision); err != nil {
		return err
	}
	return c.report(io, r)
}

// pushReport is the result of a push or a rollback.
type pushReport struct {
	Changed    bool   `json:"changed"`
	DryRun     bool   `json:"dry_run,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Policies   int    `json:"policies"`
	Digest     string `json:"digest"`
	RollbackTo uint64 `json:"rollback_to,omitempty"`

	Problems []policy.Finding `json:"problems,omitempty"` // lint's findings; they do not prevent the push
	Warnings []string         `json:"warnings,omitempty"` // policies that name a tool by an alias
}

func (c *signedBy) report(io ui.Stdio, r pushReport) error {
	switch {
	case c.JSON:
		return ui.WriteJSON(io, r)
	case !r.Changed:
		fmt.Fprintf(io.Out, "nothing to change: these %d policies are in force as revision %d; digest %s\n", r.Policies, r.Revision, r.Digest)
	case r.DryRun:
		fmt.Fprintf(io.Out, "%d policies would be in force; digest %s; nothing was changed\n", r.Policies, r.Digest)
	default:
		fmt.Fprintf(io.Out, "%d policies in force as revision %d; digest %s\n", r.Policies, r.Revision, r.Digest)
	}
	return nil
}

type policyRollbackCmd struct {
	target.Flags
	signedBy
	To uint64 `help:"The revision to put in force again; 'policy history' lists them." required:"" placeholder:"REVISION"`
}

func (c *policyRollbackCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	old, err := b.revision(ctx, c.To)
	if err != nil {
		return err
	}
	docs := policybucket.DecodeDocuments(old.Set.Documents)
	set, err := policy.Compile(docs)
	if err != nil {
		return fmt.Errorf("revision %d does not compile: %w", c.To, err)
	}
	held, err := b.InForce(ctx)
	if err != nil {
		return err
	}
	if held.HoldsExactly(docs) {
		err := c.report(io, pushReport{Revision: held.Revision, Policies: len(set.Names()), Digest: set.Digest()})
		return errors.Join(err, b.Confirm(ctx, c.WaitFlag, streams.BucketPolicies, held.Revision))
	}
	message := cmp.Or(c.Message, fmt.Sprintf("rollback to revision %d", c.To))
	change := events.PolicySet{Author: system.AuthorName(c.Author), Message: message, RollbackTo: c.To, Documents: old.Set.Documents}
	return c.apply(ctx, io, b, held, change, set)
}

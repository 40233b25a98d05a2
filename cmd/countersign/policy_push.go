package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

// signedBy are the flags of every command that changes what is in force.
type signedBy struct {
	waitFlag
	Author  string `help:"Who changes it; goes into history and log as you give it (default: your user name)." env:"COUNTERSIGN_AUTHOR" placeholder:"NAME"`
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

func (c *policyPushCmd) Run(ctx context.Context, io stdio) error {
	docs, set, err := loadPolicies(c.Dir)
	if err != nil {
		return err
	}
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	held, err := b.inForce(ctx)
	if err != nil {
		return err
	}
	if held.HoldsExactly(docs) {
		err := c.report(io, pushReport{Revision: held.Revision, Policies: len(set.Names()), Digest: set.Digest()})
		return errors.Join(err, b.confirm(ctx, c.waitFlag, streams.BucketPolicies, held.Revision))
	}
	change := events.PolicySet{Author: c.author(), Message: c.Message, Documents: policybucket.EncodeDocuments(docs)}
	return c.apply(ctx, io, b, held, change, set)
}

// apply shows a change, asks, and puts it in force.
func (c *signedBy) apply(ctx context.Context, io stdio, b *policyBucket, held *policybucket.BucketState, change events.PolicySet, set *policy.Set) error {
	if _, err := change.Encode(); err != nil {
		return err
	}
	problems := policy.Lint(policybucket.DecodeDocuments(change.Documents))
	if !c.JSON {
		for _, problem := range problems { // whoever is asked should know of them
			printProblem(newPrinter(io.err), problem)
		}
		// What is there now may be broken: then all of it is shown as replaced.
		have, _ := held.Documents()
		printDifference(newPrinter(io.err), compareDocuments(have, policybucket.DecodeDocuments(change.Documents)), c.DryRun)
	}
	r := pushReport{Changed: true, DryRun: c.DryRun, Policies: len(set.Names()), Digest: set.Digest(), RollbackTo: change.RollbackTo, Problems: problems}
	if c.DryRun {
		return c.report(io, r)
	}
	if !c.Yes && !confirmed(io, fmt.Sprintf("put these %d policies in force?", r.Policies)) {
		return fmt.Errorf("nothing was changed")
	}
	var err error
	if r.Revision, err = b.put(ctx, change, held.SetAt); err != nil {
		return err
	}
	if err := b.confirm(ctx, c.waitFlag, streams.BucketPolicies, r.Revision); err != nil {
		return err
	}
	return c.report(io, r)
}

// pushReport is what a push or a rollback did.
type pushReport struct {
	Changed    bool   `json:"changed"`
	DryRun     bool   `json:"dry_run,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Policies   int    `json:"policies"`
	Digest     string `json:"digest"`
	RollbackTo uint64 `json:"rollback_to,omitempty"`

	Problems []policy.Finding `json:"problems,omitempty"` // what lint says of what is put in force; they hinder nothing
}

func (c *signedBy) report(io stdio, r pushReport) error {
	switch {
	case c.JSON:
		return compactJSON(io, r)
	case !r.Changed:
		fmt.Fprintf(io.out, "nothing to change: these %d policies are in force as revision %d; digest %s\n", r.Policies, r.Revision, r.Digest)
	case r.DryRun:
		fmt.Fprintf(io.out, "%d policies would be in force; digest %s; nothing was changed\n", r.Policies, r.Digest)
	default:
		fmt.Fprintf(io.out, "%d policies in force as revision %d; digest %s\n", r.Policies, r.Revision, r.Digest)
	}
	return nil
}

func (c *signedBy) author() string {
	if c.Author != "" {
		return c.Author
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// confirmed asks whoever sits at the terminal. Where nobody does, whoever wrote
// the command has answered.
func confirmed(io stdio, question string) bool {
	in, isFile := io.in.(*os.File)
	if !isFile || !isatty.IsTerminal(in.Fd()) {
		return true
	}
	fmt.Fprintf(io.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

type policyRollbackCmd struct {
	target.Flags
	signedBy
	To uint64 `help:"The revision to put in force again; 'policy history' lists them." required:"" placeholder:"REVISION"`
}

func (c *policyRollbackCmd) Run(ctx context.Context, io stdio) error {
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	old, err := b.revision(ctx, c.To)
	if err != nil {
		return err
	}
	docs := policybucket.DecodeDocuments(old.Set.Documents)
	set, err := policy.Compile(docs)
	if err != nil {
		return fmt.Errorf("revision %d does not compile: %w", c.To, err)
	}
	held, err := b.inForce(ctx)
	if err != nil {
		return err
	}
	if held.HoldsExactly(docs) {
		err := c.report(io, pushReport{Revision: held.Revision, Policies: len(set.Names()), Digest: set.Digest()})
		return errors.Join(err, b.confirm(ctx, c.waitFlag, streams.BucketPolicies, held.Revision))
	}
	message := or(c.Message, fmt.Sprintf("rollback to revision %d", c.To))
	change := events.PolicySet{Author: c.author(), Message: message, RollbackTo: c.To, Documents: old.Set.Documents}
	return c.apply(ctx, io, b, held, change, set)
}

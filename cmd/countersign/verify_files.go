package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// bundle verifies a file with nothing but the file and the key.
func (c *verifyCmd) bundle(io stdio, a against) error {
	if err := c.offlineKey(&a); err != nil {
		return err
	}
	f, err := os.Open(c.Bundle)
	if err != nil {
		return usageError{fmt.Errorf("reading the bundle: %w", err)}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return usageError{fmt.Errorf("--bundle: %s is a directory", c.Bundle)}
	}
	var checks []evidence.BundleCheck
	var cosigned []evidence.Cosignature
	if len(a.witnesses) > 0 {
		checks = append(checks, evidence.WitnessCheck(a.witnesses, c.Quorum),
			evidence.CosignedBy(a.witnesses, func(list []evidence.Cosignature) { cosigned = list }))
	}
	if len(a.retired) > 0 {
		checks = append(checks, evidence.RetiredCheck(a.keys[0], a.retired))
	}
	attached, err := bundleChecker(a.public, c.StatementKey)
	if err != nil {
		return err
	}
	rep, err := evidence.VerifyBundleWith(f, info.Size(), a.public, append(checks, attached.Check)...)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Bundle, err)
	}
	foremost(&rep)
	rep.Cosigned, rep.RestsOn = cosigned, bundleBasis(rep)
	for _, note := range attached.Notes {
		fmt.Fprintln(io.err, "note:", clean(note, 400))
	}
	if c.AtLeast > 0 && int64(rep.Records) < c.AtLeast {
		return fmt.Errorf("%s holds %d records, not %d", c.Bundle, rep.Records, c.AtLeast)
	}
	return c.report(io, []evidence.Report{rep})
}

// bundleBasis says what a bundle proves by itself, for people.
func bundleBasis(rep evidence.Report) string {
	if rep.Session != "" {
		return "rests on: the file and the key alone: each record is in the signed tree, and none before the last one is missing; NOT proved: that the session has no later one"
	}
	return "rests on: the file and the key alone: the records, and the hashes of all between them, lead to the signed tree; NOT proved: that none of those hashes is of a record that belongs here"
}

// foremost puts what is wrong with the checkpoint before everything that follows
// from it.
func foremost(rep *evidence.Report) {
	slices.SortStableFunc(rep.Findings, func(a, b evidence.Finding) int {
		rank := func(p evidence.Finding) int {
			if p.Code == evidence.CodeCheckpoint {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
}

// proof verifies the proof of one record.
func (c *verifyCmd) proof(io stdio, a against) error {
	if err := c.offlineKey(&a); err != nil {
		return err
	}
	b, err := readSmall("--proof", c.Proof, evidence.MaxProofSize)
	if err != nil {
		return err
	}
	rep, rec, err := evidence.VerifyProof(evidence.ProofInput{Text: string(b), Space: subject.Space{Prefix: c.Prefix}, Keys: a.keys, Witnesses: a.witnesses, Quorum: c.Quorum})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Proof, err)
	}
	if err := c.report(io, []evidence.Report{rep}); err != nil || c.JSON {
		return err
	}
	p := newPrinter(io.out)
	p.printf("    sequence %d: %s of %s on %s\n", rec.Seq, rec.Kind, rec.BrokerTime, clean(rec.Subject, 200))
	return nil
}

// prove writes the proof of one record, and checks it first.
func (c *verifyCmd) prove(ctx context.Context, io stdio, l evidencereader.Reader, a against) error {
	shard := c.Shard
	if shard == "" {
		shards, err := l.Shards(ctx)
		if err != nil {
			return err
		}
		shard = shards[len(shards)-1]
	}
	text, err := l.ProofOf(ctx, shard, c.Prove)
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("sequence %d of %s: %w", c.Prove, shard, err)
	}
	if err != nil {
		return err
	}
	rep, _, err := evidence.VerifyProof(evidence.ProofInput{Text: text, Space: l.Space, Keys: a.keys, Witnesses: a.witnesses, Quorum: c.Quorum})
	if err != nil {
		return err
	}
	if !rep.OK {
		return c.report(io, []evidence.Report{rep})
	}
	if err := atomicfile.Write(c.Out, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the proof: %w", err)
	}
	fmt.Fprintf(io.out, "the proof that sequence %d is in the tree of size %d is in %s\nverify it anywhere: countersign verify --proof %s --key checkpoint.pub\n", c.Prove, rep.Signed, c.Out, c.Out)
	return nil
}

// report prints the reports; the command fails unless everything holds.
func (c *verifyCmd) report(io stdio, reports []evidence.Report) error {
	ok := true
	p := newPrinter(io.out)
	for _, r := range reports {
		ok = ok && r.OK
		if c.JSON {
			if err := compactJSON(io, r); err != nil {
				return err
			}
			continue
		}
		printReport(p, r)
	}
	if !ok {
		return exitCode(exitFailed)
	}
	return nil
}

func printReport(p *printer, r evidence.Report) {
	what := "shard " + clean(r.Shard, 80)
	switch {
	case r.Session != "":
		what = "session " + clean(r.Session, 60) + " in " + what
	case r.From > 0:
		what = fmt.Sprintf("sequences %d to %d of %s", r.From, r.To, what)
	}
	if r.OK {
		p.printf("%s  %s: %d records in %d sessions, %d checkpoints, signed up to %d\n    root %s\n",
			p.paint(green, "holds"), what, r.Records, r.Sessions, r.Checkpoints, r.Signed, r.Root)
		if r.Erased > 0 {
			p.printf("    %d messages were erased from the log, as its erasure records say\n", r.Erased)
		}
		for _, id := range slices.Sorted(maps.Keys(r.ExpiredBy)) {
			p.printf("    the texts of %d records expired under retention policy %s, as signed records of the log say; their hashes are in the tree\n", r.ExpiredBy[id], clean(id, 80))
		}
		if r.Compared > 0 {
			p.printf("    %d records are what the log has\n", r.Compared)
		}
		if r.Unsigned > 0 {
			p.printf("    %d signatures were not checked: a credential was taken out of a name that they cover; --compare-log=-1 checks them against the log\n", r.Unsigned)
		}
		if r.Witnessed > 0 {
			p.printf("    witnesses signed up to %d\n", r.Witnessed)
		}
		for _, s := range r.Cosigned {
			p.printf("    cosigned by %s at %s up to size %d\n", clean(s.Witness, 200), s.At, s.Size)
		}
		if r.RestsOn != "" {
			p.printf("    %s\n", p.paint(faint, r.RestsOn))
		}
		return
	}
	p.printf("%s  %s: %d problems in %d records\n", p.paint(red, "DOES NOT HOLD"), what, r.Total, r.Records)
	if r.ByCode[evidence.CodeCheckpoint] > 0 && r.Signed == 0 {
		p.printf("    no checkpoint is signed by the key that was given: is it the public key of the installation that this is from? All else may follow from that\n")
	}
	for _, problem := range r.Findings {
		p.printf("    %s\n", clean(problem.String(), 400))
	}
	if r.Total > len(r.Findings) {
		p.printf("    ... and %d more\n", r.Total-len(r.Findings))
	}
}

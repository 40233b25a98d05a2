package verify

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// Bundle verifies a bundle under a key and prints the report, as `countersign verify --bundle`
// does.
func Bundle(io ui.Stdio, path, key string) error {
	c := Cmd{Bundle: path, Key: key}
	a, err := c.against()
	if err != nil {
		return err
	}
	return c.bundle(io, a)
}

// bundle verifies a file with only the file and the key.
func (c *Cmd) bundle(io ui.Stdio, a against) error {
	if err := c.offlineKey(&a); err != nil {
		return err
	}
	info, err := os.Stat(c.Bundle) // before it is opened: to open a pipe waits for its writer
	if err != nil {
		return ui.UsageError{Err: fmt.Errorf("reading the bundle: %w", err)}
	}
	if !info.Mode().IsRegular() {
		return ui.UsageError{Err: fmt.Errorf("--bundle: %s is a directory, a pipe or a device, not a file", c.Bundle)}
	}
	f, err := os.Open(c.Bundle)
	if err != nil {
		return ui.UsageError{Err: fmt.Errorf("reading the bundle: %w", err)}
	}
	defer func() { _ = f.Close() }()
	options, err := bundleOptions(a.public, c.StatementKey)
	if err != nil {
		return err
	}
	options.Witnesses, options.Quorum, options.Retired = a.witnesses, c.Quorum, a.retired
	result, err := bundle.Verify(f, info.Size(), a.public, options)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Bundle, err)
	}
	rep := result.Report
	foremost(&rep)
	rep.RestsOn = bundleBasis(rep)
	for _, note := range result.Notes {
		rep.RestsOn += "; NOTE: " + ui.Clean(note, 400)
	}
	if c.AtLeast > 0 && int64(rep.Records) < c.AtLeast {
		return fmt.Errorf("%s holds %d records, not %d", c.Bundle, rep.Records, c.AtLeast)
	}
	return c.report(io, []verify.Report{rep}, result.Notes...)
}

// bundleBasis describes what a bundle proves by itself.
func bundleBasis(rep verify.Report) string {
	if rep.Session != "" {
		return "rests on: the file and the key alone: each record is in the signed tree, and none before the last one is missing; NOT proved: that the session has no later one"
	}
	return "rests on: the file and the key alone: the records, and the hashes of all between them, lead to the signed tree; NOT proved: that none of those hashes is of a record that belongs here"
}

// foremost puts findings about the checkpoint first: the others follow from them.
func foremost(rep *verify.Report) {
	slices.SortStableFunc(rep.Findings, func(a, b verify.Finding) int {
		rank := func(p verify.Finding) int {
			if p.Code == verify.CodeCheckpoint {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
}

// proof verifies the proof of one record.
func (c *Cmd) proof(io ui.Stdio, a against) error {
	if err := c.offlineKey(&a); err != nil {
		return err
	}
	b, err := ui.ReadSmallFile("--proof", c.Proof, verify.MaxProofSize)
	if err != nil {
		return err
	}
	rep, rec, err := verify.Proof(verify.ProofInput{Text: string(b), Space: subject.Space{Prefix: c.Prefix}, Keys: a.keys, Witnesses: a.witnesses, Quorum: c.Quorum})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Proof, err)
	}
	if err := c.report(io, []verify.Report{rep}); err != nil || c.JSON {
		return err
	}
	p := ui.NewPrinter(io.Out)
	p.Printf("    sequence %d: %s of %s on %s\n", rec.Seq, rec.Kind, rec.BrokerTime, ui.Clean(rec.Subject, 200))
	return nil
}

// prove checks the proof of one record and writes it.
func (c *Cmd) prove(ctx context.Context, io ui.Stdio, l evidencereader.Reader, a against) error {
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
	rep, _, err := verify.Proof(verify.ProofInput{Text: text, Space: l.Space, Keys: a.keys, Witnesses: a.witnesses, Quorum: c.Quorum})
	if err != nil {
		return err
	}
	if !rep.OK {
		return c.report(io, []verify.Report{rep})
	}
	if err := atomicfile.Write(c.Out, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the proof: %w", err)
	}
	fmt.Fprintf(io.Out, "the proof that sequence %d is in the tree of size %d is in %s\nverify it anywhere: countersign verify --proof %s --key checkpoint.pub\n", c.Prove, rep.Signed, c.Out, c.Out)
	return nil
}

// report prints the reports, with notes in their JSON form. It returns an error unless everything is
// verified.
func (c *Cmd) report(io ui.Stdio, reports []verify.Report, notes ...string) error {
	ok := true
	p := ui.NewPrinter(io.Out)
	for _, r := range reports {
		ok = ok && r.OK
		if r.Expired > 0 {
			r.RestsOn += fmt.Sprintf("; NOT proved: kind, subject, time and body digest of the %s whose texts expired", ui.Plural(r.Expired, "record"))
		}
		if c.JSON {
			if err := ui.WriteJSON(io, bundle.Result{Report: r, Notes: notes}); err != nil {
				return err
			}
			continue
		}
		PrintReport(p, r)
	}
	if !ok {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

// PrintReport prints the result of a verification for display.
func PrintReport(p *ui.Printer, r verify.Report) {
	what := "shard " + ui.Clean(r.Shard, 80)
	switch {
	case r.Session != "":
		what = "session " + ui.Clean(r.Session, 60) + " in " + what
	case r.From > 0:
		what = fmt.Sprintf("sequences %d to %d of %s", r.From, r.To, what)
	}
	if r.OK {
		p.Printf("%s  %s: %s in %s, %s, signed up to %d\n    root %s\n",
			p.Paint(ui.Green, "holds"), what, ui.Plural(r.Records, "record"), ui.Plural(r.Sessions, "session"), ui.Plural(r.Checkpoints, "checkpoint"), r.Signed, r.Root)
		if r.Erased > 0 {
			p.Printf("    %d messages were erased from the log, as its erasure records say\n", r.Erased)
		}
		for _, id := range slices.Sorted(maps.Keys(r.ExpiredBy)) {
			p.Printf("    the texts of %d records expired under retention policy %s, as signed records of the log say; their hashes are in the tree\n", r.ExpiredBy[id], ui.Clean(id, 80))
		}
		if r.Compared > 0 {
			p.Printf("    %d of them were compared with the log, and are what it has\n", r.Compared)
		}
		if r.SignaturesUnchecked > 0 {
			p.Printf("    %d signatures were not checked: a credential was taken out of a name that they cover, and they were not compared with the log\n", r.SignaturesUnchecked)
		}
		if r.Witnessed > 0 {
			p.Printf("    witnesses signed up to %d, %d records before the end\n", r.Witnessed, max(r.Size-r.Witnessed, 0))
		}
		for _, s := range r.Cosigned {
			p.Printf("    cosigned by %s at %s up to size %d\n", ui.Clean(s.Witness, 200), s.At, s.Size)
		}
		if r.RestsOn != "" {
			p.Printf("    %s\n", p.Paint(ui.Faint, r.RestsOn))
		}
		return
	}
	p.Printf("%s  %s: %d problems in %d records\n", p.Paint(ui.Red, "DOES NOT HOLD"), what, r.Total, r.Records)
	if r.ByCode[verify.CodeCheckpoint] > 0 && r.Signed == 0 {
		p.Printf("    no checkpoint is signed by the key that was given: is it the public key of the installation that this is from? All else may follow from that\n")
	}
	for _, problem := range r.Findings {
		p.Printf("    %s\n", ui.Clean(problem.String(), 400))
	}
	if r.Total > len(r.Findings) {
		p.Printf("    ... and %d more\n", r.Total-len(r.Findings))
	}
}

// bundleOptions returns the key that must have signed a bundle's statement, and the known keys.
func bundleOptions(key, statementFlag string) (o bundle.Options, err error) {
	if public, err := statement.ParseKey(key); err == nil {
		o.Known = []ed25519.PublicKey{public}
	}
	if statementFlag == "" {
		return o, nil
	}
	text := statementFlag
	if b, err := os.ReadFile(statementFlag); err == nil {
		text = string(b)
	}
	public, err := statement.ParseKey(text)
	if err != nil {
		return o, ui.UsageError{Err: fmt.Errorf("--statement-key: %.80q is neither a file nor a key: %w", statementFlag, err)}
	}
	o.StatementKey = public
	return o, nil
}

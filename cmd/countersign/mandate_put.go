package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// maxStored bounds a stored document: services read no more.
const maxStored = 1 << 20

// authorFlag says who changes something.
type authorFlag struct {
	Author string `help:"Who changes it; is kept as you give it (default: your user name)." env:"COUNTERSIGN_AUTHOR" placeholder:"NAME"`
}

func (a authorFlag) name() string { return (&signedBy{Author: a.Author}).author() }

type mandatePutCmd struct {
	target.Flags
	authorFlag
	waitFlag
	JSON bool   `name:"json" help:"Print the result as JSON."`
	File string `arg:"" help:"The mandate; - for standard input."`
}

// putReport is what a put did. Warnings are reason codes for which every request
// under the mandate is denied as things are.
type putReport struct {
	ID       string   `json:"id"`
	Hash     string   `json:"hash"`
	Revision uint64   `json:"revision"`
	Changed  bool     `json:"changed"`
	Warnings []string `json:"warnings"`
}

func (c *mandatePutCmd) Run(ctx context.Context, io stdio) error {
	raw, err := readInput(io, c.File)
	if err != nil {
		return err
	}
	state, err := refuseInvalid(raw)
	if err != nil {
		return err
	}
	b, err := openMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	m, err := b.signed(ctx, raw)
	if err != nil {
		return err
	}
	r := putReport{ID: m.ID, Hash: m.Hash, Warnings: state}
	revoked, err := b.revocation(ctx, m.ID, m.Hash)
	if err != nil {
		return err
	}
	if revoked != nil {
		r.Warnings = append(r.Warnings, aump.CodeRevoked)
	}
	if err := b.put(ctx, raw, c.name(), &r); err != nil {
		return err
	}
	if r.Changed {
		b.noteStranger(ctx, io)
	}
	if err := b.confirm(ctx, c.waitFlag, streams.BucketMandates, r.Revision); err != nil {
		return err
	}
	return c.report(io, r)
}

// refuseInvalid fails for what is no mandate. What only keeps a mandate from being
// used now is given as reason codes: a mandate may be put ahead of its time, or
// suspended.
func refuseInvalid(raw []byte) (state []string, err error) {
	report, err := aump.Validate(aump.KindMandate, raw, nil, time.Now())
	if err != nil {
		return nil, err
	}
	if slices.Contains(report.ReasonCodes, aump.CodeSchemaInvalid) {
		return nil, fmt.Errorf("not a valid mandate, nothing was put: %s: %s", strings.Join(report.ReasonCodes, ", "), clean(strings.Join(report.Errors, "; "), 1000))
	}
	return report.ReasonCodes, nil
}

// signed compiles a mandate and fails if its signatures are not what the tenant
// wants of them.
func (b *mandateBucket) signed(ctx context.Context, raw []byte) (*mandate.Mandate, error) {
	doc, keys, _, err := b.keys(ctx)
	if err != nil {
		return nil, err
	}
	m, err := mandate.Compile(raw, keys)
	if err != nil {
		return nil, err
	}
	if !doc.Signatures.Accepts(m.Signatures) {
		return nil, fmt.Errorf("%s, nothing was put: the tenant's keys and signature policy (mandate keys get) do not accept the signatures on %s",
			aump.CodeSignature, m.ID)
	}
	return m, nil
}

func (b *mandateBucket) put(ctx context.Context, raw []byte, author string, r *putReport) error {
	held, revision, err := b.newest(ctx, r.ID)
	if held != nil && held.Mandate == string(raw) {
		r.Revision = held.Revision
		return nil
	}
	if err != nil && revision == 0 {
		return err // what is there and cannot be read is replaced
	}
	doc := mandate.StoredMandate{V: mandate.StoredVersion, ID: r.ID, Hash: r.Hash, Mandate: string(raw), Author: author, PutAt: events.At(time.Now())}
	if body, err := events.Encode(doc); err != nil || len(body) > maxStored {
		return errors.Join(errors.New("the mandate is too large to be stored: at most 1 MiB with its wrapping"), err)
	}
	r.Changed = true
	r.Revision, err = b.write(ctx, mandate.Key(b.tenant, r.ID), doc, revision)
	return err
}

func (c *mandatePutCmd) report(io stdio, r putReport) error {
	if c.JSON {
		return compactJSON(io, r)
	}
	for _, code := range r.Warnings {
		fmt.Fprintf(io.err, "warning: as things are, every request under this mandate is denied: %s\n", code)
	}
	if !r.Changed {
		fmt.Fprintf(io.out, "nothing to change: %s is in force as revision %d; hash %s\n", r.ID, r.Revision, r.Hash)
		return nil
	}
	fmt.Fprintf(io.out, "%s in force as revision %d; hash %s\n", r.ID, r.Revision, r.Hash)
	return nil
}

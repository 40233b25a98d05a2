package mandatecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// maxStored bounds a stored document: services read no larger ones.
const maxStored = 1 << 20

// authorFlag names the author of a change.
type authorFlag struct {
	Author string `help:"Author of the change; is kept as you give it (default: your user name)." env:"COUNTERSIGN_AUTHOR" placeholder:"NAME"`
}

func (a authorFlag) name() string { return system.AuthorName(a.Author) }

type mandatePutCmd struct {
	target.Flags
	authorFlag
	system.WaitFlag
	JSON bool   `name:"json" help:"Print the result as JSON."`
	File string `arg:"" help:"The mandate; - for standard input."`
}

// putReport is the result of a put. Warnings are reason codes for which every request under the
// mandate is denied at present.
type putReport struct {
	ID       string   `json:"id"`
	Hash     string   `json:"hash"`
	Revision uint64   `json:"revision"`
	Changed  bool     `json:"changed"`
	Warnings []string `json:"warnings"`
}

func (c *mandatePutCmd) Run(ctx context.Context, io ui.Stdio) error {
	raw, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	state, err := refuseInvalid(raw)
	if err != nil {
		return err
	}
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
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
		b.NoteUnknownTenant(ctx, io)
	}
	if err := b.Confirm(ctx, c.WaitFlag, streams.BucketMandates, r.Revision); err != nil {
		return err
	}
	return c.report(io, r)
}

// refuseInvalid returns an error for a document that is not a mandate. What only prevents using
// it now is returned as reason codes: a mandate may be put ahead of its time, or suspended.
func refuseInvalid(raw []byte) (state []string, err error) {
	report, err := aump.Validate(aump.KindMandate, raw, nil, time.Now())
	if err != nil {
		return nil, err
	}
	if slices.Contains(report.ReasonCodes, aump.CodeSchemaInvalid) {
		return nil, fmt.Errorf("not a valid mandate, nothing was put: %s: %s", strings.Join(report.ReasonCodes, ", "), ui.Clean(strings.Join(report.Errors, "; "), 1000))
	}
	return report.ReasonCodes, nil
}

// signed compiles a mandate and returns an error if it lacks the signatures that the tenant
// requires.
func (b *MandateBucket) signed(ctx context.Context, raw []byte) (*mandate.Mandate, error) {
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

func (b *MandateBucket) put(ctx context.Context, raw []byte, author string, r *putReport) error {
	held, revision, err := b.newest(ctx, r.ID)
	if held != nil && held.Mandate == string(raw) {
		r.Revision = held.Revision
		return nil
	}
	if err != nil && revision == 0 {
		return err // an unreadable revision is replaced
	}
	doc := mandate.StoredMandate{V: mandate.StoredVersion, ID: r.ID, Hash: r.Hash, Mandate: string(raw), Author: author, PutAt: events.At(time.Now())}
	if body, err := events.Encode(doc); err != nil || len(body) > maxStored {
		return errors.Join(errors.New("the mandate is too large to be stored: at most 1 MiB with its wrapping"), err)
	}
	r.Changed = true
	r.Revision, err = b.write(ctx, mandate.Key(b.Tenant, r.ID), doc, revision)
	return err
}

func (c *mandatePutCmd) report(io ui.Stdio, r putReport) error {
	if c.JSON {
		return ui.WriteJSON(io, r)
	}
	for _, code := range r.Warnings {
		fmt.Fprintf(io.Err, "warning: as things are, every request under this mandate is denied: %s\n", code)
	}
	if !r.Changed {
		fmt.Fprintf(io.Out, "nothing to change: %s is in force as revision %d; hash %s\n", r.ID, r.Revision, r.Hash)
		return nil
	}
	fmt.Fprintf(io.Out, "%s in force as revision %d; hash %s\n", r.ID, r.Revision, r.Hash)
	return nil
}

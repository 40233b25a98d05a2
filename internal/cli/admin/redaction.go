// Package admin has the commands that administer a system: redaction and retention, which the
// auditor carries out, the receipt keys and the gateway's tokens. Each command is a type with a Run
// method, which the command line's parser (kong) calls.
package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// RedactionCmd is `countersign redaction`.
type RedactionCmd struct {
	Test      redactionTestCmd      `cmd:"" help:"Show what would be redacted in an event, offline; what is found is never printed."`
	Lint      redactionLintCmd      `cmd:"" help:"Say what is wrong with a policy, offline."`
	Push      redactionPushCmd      `cmd:"" help:"Put a tenant's redaction policy in force; it counts from the auditor's next batch on."`
	Show      redactionShowCmd      `cmd:"" help:"Print the tenant's policy in force."`
	Remove    redactionRemoveCmd    `cmd:"" help:"Take the tenant's policy out of force: the built-in rules apply."`
	Detectors redactionDetectorsCmd `cmd:"" help:"List what policies can name."`
}

type redactionLintCmd struct {
	File string `arg:"" help:"The policy (YAML)."`
}

func (c *redactionLintCmd) Run(io ui.Stdio) error { return redactionPolicy.lint(io, c.File) }

type redactionPushCmd struct {
	target.Flags
	File string `arg:"" help:"The policy (YAML); - for standard input."`
}

func (c *redactionPushCmd) Run(ctx context.Context, io ui.Stdio) error {
	return redactionPolicy.push(ctx, io, c.Flags, c.File)
}

type redactionShowCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *redactionShowCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := system.OpenBucket(ctx, c.Flags, streams.BucketRedaction)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	e, err := b.KV.Get(ctx, events.RuleKey(b.Tenant))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		if c.JSON {
			return ui.WriteJSON(io, policyView{Tenant: b.Tenant})
		}
		fmt.Fprintf(io.Err, "tenant %s has no redaction policy: the built-in rules mask everything that is found\n", ui.Clean(b.Tenant, 64))
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the redaction policy of tenant %s: %w", ui.Clean(b.Tenant, 64), err)
	}
	p, bad := redaction.Parse(b.Tenant, e.Value())
	if c.JSON {
		v := policyView{Tenant: b.Tenant, Policy: string(e.Value()), Revision: e.Revision(), Since: events.At(e.Created())}
		if bad == nil {
			v.ID = p.ID()
		}
		err = ui.WriteJSON(io, v)
	} else {
		_, err = io.Out.Write(e.Value())
	}
	switch {
	case err != nil:
		return err
	case bad != nil:
		return fmt.Errorf("this policy cannot be used, and the tenant's bodies are withheld from the evidence: %w", bad)
	case c.JSON:
		return nil
	}
	fmt.Fprintf(io.Err, "%s, revision %d, since %s\n", p.ID(), e.Revision(), e.Created().UTC().Format("2006-01-02 15:04:05Z"))
	return nil
}

// policyView is the tenant's policy in the JSON output.
type policyView struct {
	Tenant   string      `json:"tenant"`
	Policy   string      `json:"policy"`              // its text; "" if the built-in rules apply
	ID       string      `json:"policy_id,omitempty"` // of a policy that can be used
	Revision uint64      `json:"revision,omitempty"`
	Since    events.Time `json:"since,omitzero"`
}

type redactionRemoveCmd struct{ target.Flags }

func (c *redactionRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	return redactionPolicy.remove(ctx, io, c.Flags)
}

type redactionDetectorsCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *redactionDetectorsCmd) Run(io ui.Stdio) error {
	list := redaction.Detectors()
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	var t ui.Listing
	for _, d := range list {
		kind := "may never be released"
		switch {
		case d.Personal:
			kind = "personal data (group: personal)"
		case d.Releasable:
			kind = "may be released at named places"
		}
		t.Row(d.Name, kind)
	}
	return t.Print(io.Out)
}

package publishercmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
	"github.com/countersign-dev/countersign/streams"
)

type publisherPutCmd struct {
	target.Flags
	system.WaitFlag
	JSON bool   `name:"json" help:"Print the result as JSON."`
	File string `arg:"" help:"The document: an AgentHook publisher manifest, a registration or a tool catalogue; - for standard input."`
}

// publisherReport is the result of a put or remove.
type publisherReport struct {
	Name     string   `json:"name"`
	Tenant   string   `json:"tenant"`
	Revision uint64   `json:"revision"`
	Changed  bool     `json:"changed"`
	Warnings []string `json:"warnings"`
}

// Run refuses a document that cannot be used, alone or with those in force: it would deny every
// request of the tenant.
func (c *publisherPutCmd) Run(ctx context.Context, io ui.Stdio) error {
	data, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	p, err := publisher.Parse(data)
	if err != nil {
		return fmt.Errorf("not usable, nothing was put: %w", err)
	}
	b, err := OpenPublishers(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	r := publisherReport{Name: p.Name, Tenant: b.Tenant, Warnings: []string{}}
	docs, entries, _, err := b.Documents(ctx)
	if err != nil {
		return err
	}
	if held, there := entries[p.Name]; there && string(held.Value) == string(data) {
		r.Revision = held.Revision
		if err := b.Confirm(ctx, c.WaitFlag, streams.BucketPublishers, r.Revision); err != nil {
			return err
		}
		return r.print(io, c.JSON, "nothing to change: %s is in force as revision %d\n")
	}
	if err := fits(docs, publisher.Document{Tenant: b.Tenant, Name: p.Name, Data: data}); err != nil {
		return err
	}
	if r.Warnings, err = b.renamed(ctx, p); err != nil {
		return err
	}
	last, err := b.last(ctx, p.Name)
	if err != nil {
		return err
	}
	revision := uint64(0)
	if last != nil {
		revision = last.Revision
	}
	if r.Revision, err = b.Update(ctx, publisher.Key(b.Tenant, p.Name), data, revision, errChangedMeanwhile); err != nil {
		return err
	}
	r.Changed = true
	b.NoteUnknownTenant(ctx, io)
	if err := b.Confirm(ctx, c.WaitFlag, streams.BucketPublishers, r.Revision); err != nil {
		return err
	}
	return r.print(io, c.JSON, "%s in force as revision %d\n")
}

// fits returns an error if a document cannot be used beside the others. Problems that existed
// before do not count.
func fits(docs []publisher.Document, next publisher.Document) error {
	before := publisher.Compile(docs, 0).Err()
	docs = append(slices.DeleteFunc(slices.Clone(docs), func(d publisher.Document) bool { return d.Name == next.Name }), next)
	after := publisher.Compile(docs, 0).Err()
	if after == nil || before != nil && after.Error() == before.Error() {
		return nil
	}
	if before != nil && strings.Count(after.Error(), "\n") < strings.Count(before.Error(), "\n") {
		return nil // it fixes a problem
	}
	return fmt.Errorf("it does not go with what is in force, nothing was put: %w", after)
}

// renamed warns of policies that name a tool by an alias: from now on they see its canonical
// name.
func (b *PublisherBucket) renamed(ctx context.Context, p publisher.Parsed) ([]string, error) {
	aliases := p.Aliases()
	if len(aliases) == 0 {
		return []string{}, nil
	}
	held, err := policybucket.InForce(ctx, b.JS)
	if err != nil {
		return nil, err
	}
	docs, err := held.Documents()
	if err != nil {
		return []string{}, nil // policies that do not compile deny everything; policy list reports it
	}
	return AliasWarnings(docs, aliases), nil
}

// RegisteredAliases are the aliases of tools in the catalogues of all tenants.
func RegisteredAliases(ctx context.Context, js jetstream.JetStream) (list []publisher.Alias, err error) {
	entries, err := streams.KVLive(ctx, js, streams.BucketPublishers, nil)
	for _, e := range entries {
		if p, err := publisher.Parse(e.Value); err == nil { // what is not usable has no aliases; publisher list reports it
			list = append(list, p.Aliases()...)
		}
	}
	return list, err
}

// AliasWarnings names the policy files that mention a tool by an alias, in order.
func AliasWarnings(docs []policy.Document, aliases []publisher.Alias) []string {
	warnings := []string{}
	for _, a := range aliases {
		for _, d := range docs {
			if hasWord(d.Data, []byte(a.Name)) {
				warnings = append(warnings, fmt.Sprintf("the policy file %s mentions %s: policies see that tool as %s", ui.Clean(d.Name, 80), ui.Clean(a.Name, 80), a.Tool))
			}
		}
	}
	slices.Sort(warnings)
	return slices.Compact(warnings) // tenants may have the same alias
}

// hasWord reports whether a text has a word by itself: no letter, digit, _, . or - is beside it.
func hasWord(text, word []byte) bool {
	for {
		i := bytes.Index(text, word)
		if i < 0 || len(word) == 0 {
			return false
		}
		after := text[i+len(word):]
		if (i == 0 || !isWordByte(text[i-1])) && (len(after) == 0 || !isWordByte(after[0])) {
			return true
		}
		text = text[i+1:]
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
}

// errChangedMeanwhile reports that a document has changed since a change of it was prepared.
var errChangedMeanwhile = errors.New("another writer changed it in the same moment; look at it (publisher list) and try again")

func (r publisherReport) print(io ui.Stdio, asJSON bool, format string) error {
	if asJSON {
		return ui.WriteJSON(io, r)
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(io.Err, "warning:", w)
	}
	_, err := fmt.Fprintf(io.Out, format, ui.Clean(r.Name, 200), r.Revision)
	return err
}

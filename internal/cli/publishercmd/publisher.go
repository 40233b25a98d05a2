// Package publishercmd has the command publisher: manifests, registrations and tool catalogues are put,
// read, removed and judged. OpenPublishers serves other command packages.
package publishercmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// Cmd is `countersign publisher`.
type Cmd struct {
	Put      publisherPutCmd      `cmd:"" help:"Put a publisher manifest, a registration or a tool catalogue in force."`
	Get      publisherGetCmd      `cmd:"" help:"Print a document, byte for byte as it was put."`
	List     publisherListCmd     `cmd:"" help:"List the documents in force, and what is wrong with them."`
	Remove   publisherRemoveCmd   `cmd:"" help:"Take a document out of force."`
	Validate publisherValidateCmd `cmd:"" help:"Judge documents offline, alone and together."`
}

// PublisherBucket gives an operator access to the publishers of one tenant.
type PublisherBucket struct{ system.Bucket }

// OpenPublishers finds the running system and opens its publishers.
func OpenPublishers(ctx context.Context, f target.Flags) (*PublisherBucket, error) {
	b, err := system.OpenBucket(ctx, f, streams.BucketPublishers)
	return &PublisherBucket{b}, err
}

// last reads the newest revision of a document, which may be a removal; nil if the document never
// existed.
func (b *PublisherBucket) last(ctx context.Context, name string) (*streams.KVEntry, error) {
	e, err := streams.KVLast(ctx, b.JS, streams.BucketPublishers, publisher.Key(b.Tenant, name))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return e, nil
}

// Documents returns the tenant's documents in force, by name, and the bucket's keys that do not
// name a document.
func (b *PublisherBucket) Documents(ctx context.Context) (docs []publisher.Document, entries map[string]streams.KVEntry, unusable []string, err error) {
	list, err := streams.KVLive(ctx, b.JS, streams.BucketPublishers, func(key string) bool {
		tenant, _, err := publisher.ParseKey(key)
		return err != nil || tenant == b.Tenant
	})
	entries = map[string]streams.KVEntry{}
	for _, e := range list {
		_, name, err := publisher.ParseKey(e.Key)
		if err != nil {
			unusable = append(unusable, e.Key)
			continue
		}
		docs = append(docs, publisher.Document{Tenant: b.Tenant, Name: name, Data: e.Value, Revision: e.Revision})
		entries[name] = e
	}
	return docs, entries, unusable, err
}

// GatewayOf is the gateway through which a publisher is registered as reached, "" for none. b may be
// any bucket of the system.
func (b *PublisherBucket) GatewayOf(ctx context.Context, name string) (string, error) {
	docs, _, unusable, err := b.Documents(ctx)
	if err != nil {
		return "", err
	}
	return publisher.Compile(docs, 0, unusable...).Gateway(b.Tenant, name), nil
}

type publisherGetCmd struct {
	target.Flags
	Revision uint64 `help:"An earlier revision of it." placeholder:"REVISION"`
	Name     string `arg:"" help:"The document's name, as 'publisher list' shows it."`
}

func (c *publisherGetCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenPublishers(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	key, err := b.key(c.Name)
	if err != nil {
		return err
	}
	history, err := streams.KVHistory(ctx, b.JS, streams.BucketPublishers, key)
	if err != nil {
		return err
	}
	if len(history) > 0 && c.Revision == 0 {
		history = history[len(history)-1:]
	}
	for _, e := range history {
		if !e.Deleted && (c.Revision == 0 || e.Revision == c.Revision) {
			_, err := io.Out.Write(e.Value)
			return err
		}
	}
	if c.Revision != 0 {
		return fmt.Errorf("tenant %s has no revision %d of %s that the bucket still holds", b.Tenant, c.Revision, ui.Clean(c.Name, 200))
	}
	return fmt.Errorf("tenant %s has no document %s in force (publisher list)", b.Tenant, ui.Clean(c.Name, 200))
}

// key is the bucket's key of a document that an operator names.
func (b *PublisherBucket) key(name string) (string, error) {
	key := publisher.Key(b.Tenant, name)
	if _, _, err := publisher.ParseKey(key); err != nil {
		return "", ui.UsageError{Err: fmt.Errorf("%q is not the name of a document, such as tools.mail (publisher list)", ui.Clean(name, 80))}
	}
	return key, nil
}

type publisherListCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

// publisherEntry is one document in force.
type publisherEntry struct {
	Name     string      `json:"name"`
	Kind     string      `json:"kind"`
	Revision uint64      `json:"revision"`
	PutAt    events.Time `json:"put_at"`
	Bytes    int         `json:"bytes"`
	Digest   string      `json:"digest"`
	About    string      `json:"about"`
}

func (c *publisherListCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenPublishers(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	docs, entries, unusable, err := b.Documents(ctx)
	if err != nil {
		return err
	}
	set := publisher.Compile(docs, 0, unusable...)
	if err := set.Err(); err != nil {
		fmt.Fprintln(io.Err, "warning: every request of this tenant is denied until this is mended:", ui.Clean(err.Error(), 2000))
	}
	list := []publisherEntry{}
	for _, d := range set.Documents() {
		e := entries[d.Name]
		kind, _, _ := strings.Cut(d.Name, ".")
		p, _ := publisher.Parse(e.Value)
		list = append(list, publisherEntry{d.Name, kind, e.Revision, events.At(e.Created), len(e.Value), d.Digest, p.Summary()})
	}
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(io.Out, "tenant %s has declared no publishers and no tools (countersign publisher put FILE)\n", ui.Clean(b.Tenant, 64))
	}
	for _, d := range list {
		fmt.Fprintf(io.Out, "%s revision %-6d %6d B  %s  %s\n", ui.Fill(ui.Clean(d.Name, 200), 40), d.Revision, d.Bytes, d.PutAt.UTC().Format("2006-01-02 15:04:05"), ui.Clean(d.About, 200))
	}
	return nil
}

type publisherRemoveCmd struct {
	target.Flags
	system.WaitFlag
	JSON bool   `name:"json" help:"Print the result as JSON."`
	Name string `arg:"" help:"The document's name, as 'publisher list' shows it."`
}

func (c *publisherRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenPublishers(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	key, err := b.key(c.Name)
	if err != nil {
		return err
	}
	last, err := b.last(ctx, c.Name)
	if err != nil {
		return err
	}
	if last == nil || last.Deleted {
		return fmt.Errorf("tenant %s has no document %s in force (publisher list)", b.Tenant, ui.Clean(c.Name, 200))
	}
	err = b.KV.Delete(ctx, key, jetstream.LastRevision(last.Revision))
	if err != nil {
		return fmt.Errorf("taking %s out of force: %w (another writer may have changed it in the same moment)", ui.Clean(c.Name, 200), err)
	}
	gone, err := b.last(ctx, c.Name)
	if err != nil {
		return err
	}
	if gone != nil {
		if err := b.Confirm(ctx, c.WaitFlag, streams.BucketPublishers, gone.Revision); err != nil {
			return err
		}
	}
	r := publisherReport{Name: c.Name, Tenant: b.Tenant, Revision: last.Revision, Changed: true, Warnings: []string{}}
	return r.print(io, c.JSON, "%s is out of force; it was revision %d\n")
}

type publisherValidateCmd struct {
	Files []string `arg:"" help:"Documents."`
}

func (c *publisherValidateCmd) Run(io ui.Stdio) error {
	var docs []publisher.Document
	for _, file := range c.Files {
		data, err := ui.ReadInput(io, file)
		if err != nil {
			return err
		}
		p, err := publisher.Parse(data)
		if err != nil {
			return fmt.Errorf("%s: %w", ui.Clean(file, 200), err)
		}
		docs = append(docs, publisher.Document{Name: p.Name, Data: data})
	}
	set := publisher.Compile(docs, 0)
	if err := set.Err(); err != nil {
		return fmt.Errorf("they do not go together: %w", err)
	}
	fmt.Fprintf(io.Out, "%s usable\n", ui.Counted(len(docs), "document", "is", "are"))
	return nil
}

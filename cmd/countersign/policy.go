package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/streams"
)

type policyCmd struct {
	Lint policyLintCmd `cmd:"" help:"Compile the policies of a directory and say what is wrong."`
	Push policyPushCmd `cmd:"" help:"Put the policies of a directory in force, once all of them compile."`
	List policyListCmd `cmd:"" help:"List the policies in force."`
}

type policyLintCmd struct {
	Dir string `arg:"" help:"Directory of *.yaml files."`
}

func (c *policyLintCmd) Run(io stdio) error {
	docs, set, err := loadPolicies(c.Dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%d policies in %d files compile; digest %s\n", len(set.Names()), len(docs), set.Digest())
	return nil
}

// loadPolicies reads and compiles a directory. A missing or empty one is an
// error: "no rules" must never be read as "allow".
func loadPolicies(dir string) ([]policy.Document, *policy.Set, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, nil, fmt.Errorf("reading the policies: %w", err)
	}
	docs, err := policy.LoadDir(os.DirFS(dir))
	if err != nil {
		return nil, nil, fmt.Errorf("policies in %s: %w", dir, err)
	}
	set, err := policy.Compile(docs)
	if err != nil {
		return nil, nil, fmt.Errorf("policies in %s do not compile: %w", dir, err)
	}
	return docs, set, nil
}

type policyPushCmd struct {
	target.Flags
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
	if err := b.push(ctx, docs); err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%d policies in force; digest %s\n", len(set.Names()), set.Digest())
	return nil
}

// policyBucket is the policies bucket as an operator sees it.
type policyBucket struct {
	nc *nats.Conn
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// push makes the bucket hold exactly docs. What is new goes in before what is
// gone goes out, so that no moment is without a rule that both have.
func (b *policyBucket) push(ctx context.Context, docs []policy.Document) error {
	keep := map[string]bool{}
	for _, d := range docs {
		keep[d.Name] = true
		if old, err := b.kv.Get(ctx, d.Name); err == nil && string(old.Value()) == string(d.Data) {
			continue
		}
		if _, err := b.kv.Put(ctx, d.Name, d.Data); err != nil {
			return fmt.Errorf("pushing policy %s: %w", d.Name, err)
		}
	}
	entries, err := b.entries(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep[e.Key()] {
			continue
		}
		if err := b.kv.Delete(ctx, e.Key()); err != nil {
			return fmt.Errorf("taking policy %s out of force: %w", e.Key(), err)
		}
	}
	return nil
}

// entries are the policies in force, by name.
func (b *policyBucket) entries(ctx context.Context) ([]jetstream.KeyValueEntry, error) {
	names, err := streams.KVKeys(ctx, b.js, streams.BucketPolicies)
	if err != nil {
		return nil, fmt.Errorf("listing the policies: %w", err)
	}
	slices.Sort(names)
	var list []jetstream.KeyValueEntry
	for _, name := range names {
		e, err := b.kv.Get(ctx, name)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // taken out of force
		}
		if err != nil {
			return nil, fmt.Errorf("reading policy %s: %w", name, err)
		}
		list = append(list, e)
	}
	return list, nil
}

type policyListCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

type policyEntry struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	Bytes    int    `json:"bytes"`
	Created  string `json:"created"`
}

func (c *policyListCmd) Run(ctx context.Context, io stdio) error {
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	entries, err := b.entries(ctx)
	if err != nil {
		return err
	}
	list := []policyEntry{}
	for _, e := range entries {
		list = append(list, policyEntry{e.Key(), e.Revision(), len(e.Value()), e.Created().UTC().Format("2006-01-02 15:04:05")})
	}
	if c.JSON {
		return json.NewEncoder(io.out).Encode(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(io.out, "no policy is in force: every request is denied (countersign policy push DIR)")
	}
	for _, e := range list {
		fmt.Fprintf(io.out, "%-32s revision %-6d %6d B  %s\n", clean(e.Name, 32), e.Revision, e.Bytes, e.Created)
	}
	return nil
}

func openPolicies(ctx context.Context, f target.Flags) (*policyBucket, error) {
	t, err := f.Resolve()
	if err != nil {
		return nil, err
	}
	return openPoliciesAt(ctx, t)
}

func openPoliciesAt(ctx context.Context, t *target.Target) (b *policyBucket, err error) {
	b = &policyBucket{}
	if b.nc, err = t.Connect(ctx, target.Operator); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.nc.Close()
			err = fmt.Errorf("opening the policies bucket: %w", err)
		}
	}()
	if b.js, err = jetstream.New(b.nc); err != nil {
		return nil, err
	}
	b.kv, err = b.js.KeyValue(ctx, streams.BucketPolicies)
	return b, err
}

package mandatecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

type mandateKeysCmd struct {
	Put mandateKeysPutCmd `cmd:"" help:"Put the keys that may sign the tenant's mandates, in the place of all earlier ones."`
	Get mandateKeysGetCmd `cmd:"" help:"Print the keys and the signature policy."`
}

type mandateKeysPutCmd struct {
	target.Flags
	authorFlag
	system.WaitFlag
	Signatures string `help:"What mandates need: ${enum} (auto: those that are there must verify, once there are keys; default: as it is)." enum:"auto,off,if_present,required,keep" default:"keep"`
	JSON       bool   `name:"json" help:"Print the result as JSON."`
	File       string `arg:"" help:"A JSON Web Key Set, or an AUMP profile with signing keys; - for standard input."`
}

// keysReport describes the keys that sign a tenant's mandates.
type keysReport struct {
	Keys       []string    `json:"keys"` // their key ids
	Signatures string      `json:"signatures"`
	Author     string      `json:"author"`
	PutAt      events.Time `json:"put_at,omitzero"`
	Revision   uint64      `json:"revision"`
}

func (c *mandateKeysPutCmd) Run(ctx context.Context, io ui.Stdio) error {
	raw, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	doc := mandate.SigningKeys{V: mandate.StoredVersion, Author: c.name(), PutAt: events.At(time.Now())}
	if doc.Keys, err = readSigningKeys(raw); err != nil {
		return fmt.Errorf("%s: %w", ui.Clean(c.File, 200), err)
	}
	set, err := doc.Set()
	if err != nil {
		return fmt.Errorf("%s: %w", ui.Clean(c.File, 200), err)
	}
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	old, _, revision, err := b.keys(ctx)
	switch {
	case c.Signatures != "keep":
		doc.Signatures = mandate.SignaturePolicies[c.Signatures]
	case err != nil:
		return fmt.Errorf("%w; say with --signatures what mandates need", err)
	default:
		doc.Signatures = old.Signatures
	}
	if revision, err = b.write(ctx, mandate.KeysKey(b.Tenant), doc, revision); err != nil {
		return err
	}
	if err := b.Confirm(ctx, c.WaitFlag, streams.BucketMandates, revision); err != nil {
		return err
	}
	return reportKeys(io, doc, set, revision, c.JSON)
}

// readSigningKeys reads a key set or a profile. It refuses private keys: the bucket must not hold
// secrets.
func readSigningKeys(raw []byte) ([]map[string]any, error) {
	tree, err := strictjson.ParseObject(raw, strictjson.DefaultLimits)
	if err != nil {
		return nil, err
	}
	member := "keys"
	if aump.TypeOf(tree) == aump.TypeProfile {
		member = "signing_keys"
	}
	list, ok := tree[member].([]any)
	if !ok {
		return nil, errors.New("neither a JSON Web Key Set ({\"keys\": […]}) nor an AUMP profile with signing_keys")
	}
	keys := make([]map[string]any, 0, len(list))
	for i, k := range list {
		jwk, ok := k.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("key %d is not an object", i+1)
		}
		if _, private := jwk["d"]; private {
			return nil, fmt.Errorf("key %d has its private half; publish the public one only", i+1)
		}
		keys = append(keys, jwk)
	}
	return keys, nil
}

type mandateKeysGetCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *mandateKeysGetCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	doc, set, revision, err := b.keys(ctx)
	if err != nil {
		return err
	}
	return reportKeys(io, doc, set, revision, c.JSON)
}

func reportKeys(io ui.Stdio, doc mandate.SigningKeys, set aump.KeySet, revision uint64, asJSON bool) error {
	r := keysReport{Keys: slices.Sorted(maps.Keys(set)), Author: doc.Author, PutAt: doc.PutAt, Revision: revision}
	for name, p := range mandate.SignaturePolicies {
		if p == doc.Signatures {
			r.Signatures = name
		}
	}
	if r.Keys == nil {
		r.Keys = []string{}
	}
	if asJSON {
		return ui.WriteJSON(io, r)
	}
	fmt.Fprintf(io.Out, "%d keys, signatures %s\n", len(r.Keys), r.Signatures)
	for _, kid := range r.Keys {
		fmt.Fprintf(io.Out, "    %s\n", ui.Clean(kid, 200))
	}
	return nil
}

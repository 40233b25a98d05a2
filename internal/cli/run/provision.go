package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/streams"
)

// ProvisionCmd is `countersign provision`.
type ProvisionCmd struct {
	target.Flags
	Keys     string `help:"Create missing key files here, and vouch for the admitter's key." placeholder:"DIR"`
	Streams  bool   `help:"Create missing streams and buckets on the server, as the provisioner."`
	Replicas int    `help:"Replicas of every stream; 0: as the log has it, 1 for a new one." default:"0"`
	JSON     bool   `name:"json" help:"Print JSON."`
}

// provisioned is what the command made or found.
type provisioned struct {
	Keys      string   `json:"keys,omitempty"`       // the directory
	PublicKey string   `json:"public_key,omitempty"` // the checkpoint key
	Created   []string `json:"created,omitempty"`    // streams and buckets
	Existing  []string `json:"existing,omitempty"`
}

func (c *ProvisionCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Keys == "" && !c.Streams {
		return ui.UsageError{Err: errors.New("nothing to do: give --keys DIR, --streams or both")}
	}
	var made provisioned
	if c.Keys != "" {
		if err := keys.Ensure(c.Keys, keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile); err != nil {
			return err
		}
		public, err := keys.Vouch(c.Keys, time.Now())
		if err != nil {
			return err
		}
		made.Keys, made.PublicKey = c.Keys, strings.TrimSpace(public)
		if !c.JSON {
			fmt.Fprintf(io.Out, "keys in %s; public checkpoint key:\n%s\n", made.Keys, made.PublicKey)
		}
	}
	var failed error
	if c.Streams {
		var report streams.ProvisionReport
		report, failed = c.provision(ctx, io)
		made.Created, made.Existing = report.Created, report.Existing
	}
	if c.JSON {
		if failed == nil || made.Keys != "" { // the keys are there all the same
			failed = errors.Join(ui.WriteJSON(io, made), failed)
		}
		return failed
	}
	for _, s := range made.Created {
		fmt.Fprintln(io.Out, "created ", s)
	}
	for _, s := range made.Existing {
		fmt.Fprintln(io.Out, "existing", s)
	}
	return failed
}

// provision makes streams and buckets. It prints what differs.
func (c *ProvisionCmd) provision(ctx context.Context, io ui.Stdio) (none streams.ProvisionReport, err error) {
	t, err := c.Resolve()
	if err != nil {
		return none, err
	}
	nc, err := t.Connect(ctx, string(streams.RoleProvisioner))
	if err != nil {
		return none, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return none, err
	}
	report, err := streams.Provision(ctx, js, streams.Shard{Name: c.Stream, Space: subject.Space{Prefix: c.Prefix}, Replicas: c.Replicas})
	var conflict *streams.ConflictError
	if errors.As(err, &conflict) {
		for _, d := range conflict.Differences {
			fmt.Fprintln(io.Err, "  ", d)
		}
		return none, errors.New("streams or buckets exist with other settings; nothing that existed was changed. No user of Countersign may change a stream: docs/operating.md says at \"A cluster of three servers\" how to. Or name another shard with --stream")
	}
	return report, err
}

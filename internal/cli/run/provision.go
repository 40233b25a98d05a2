package run

import (
	"context"
	"errors"
	"fmt"
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
	Replicas int    `help:"Replicas of every stream." default:"1"`
}

func (c *ProvisionCmd) Run(ctx context.Context, io ui.Stdio) error {
	if c.Keys == "" && !c.Streams {
		return ui.UsageError{Err: errors.New("nothing to do: give --keys DIR, --streams or both")}
	}
	if c.Keys != "" {
		if err := keys.Ensure(c.Keys, keys.ReceiptFile, keys.CheckpointFile, keys.MasterFile); err != nil {
			return err
		}
		public, err := keys.Vouch(c.Keys, time.Now())
		if err != nil {
			return err
		}
		fmt.Fprintf(io.Out, "keys in %s; public checkpoint key:\n%s\n", c.Keys, public)
	}
	if !c.Streams {
		return nil
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	nc, err := t.Connect(ctx, string(streams.RoleProvisioner))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	report, err := streams.Provision(ctx, js, streams.Shard{Name: c.Stream, Space: subject.Space{Prefix: c.Prefix}, Replicas: c.Replicas})
	var conflict *streams.ConflictError
	if errors.As(err, &conflict) {
		for _, d := range conflict.Differences {
			fmt.Fprintln(io.Err, "  ", d)
		}
		return errors.New("streams or buckets exist with other settings; nothing was changed. Change them with the nats tool, or name another shard with --stream")
	}
	if err != nil {
		return err
	}
	for _, s := range report.Created {
		fmt.Fprintln(io.Out, "created ", s)
	}
	for _, s := range report.Existing {
		fmt.Fprintln(io.Out, "existing", s)
	}
	return nil
}

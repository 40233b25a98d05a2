package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

// PublishCmd is `countersign publish`.
type PublishCmd struct {
	target.Flags
	Protocol  string `help:"Protocol of the events: agenthook, aaep or aump (evidence events)." required:""`
	Session   string `help:"Session of events that have no field for it, as AUMP's evidence events."`
	Publisher string `help:"Publisher token (default: the NATS user)."`
	Quiet     bool   `short:"q" help:"Say nothing on success."`

	CloudEvents bool `name:"cloudevents" help:"The input holds CloudEvents in the JSON format; the data of each is an event."`

	File string `arg:"" help:"One event, a JSON array or JSON Lines; - for standard input."`
}

func (c *PublishCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	input, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	recording, err := correlation.ParseRecording(input)
	if err != nil {
		return ui.UsageError{Err: fmt.Errorf("%s: %w", c.File, err)}
	}
	if len(recording) == 0 {
		return ui.UsageError{Err: fmt.Errorf("%s holds no event", c.File)}
	}
	list := make([][]byte, len(recording))
	for i, e := range recording {
		list[i] = e
	}
	publisher := c.Publisher
	if publisher == "" {
		publisher = t.Publisher()
	}
	if publisher == "" {
		return ui.UsageError{Err: errors.New("no publisher named: give --publisher, --user or --ready-file")}
	}
	msgs, err := c.messages(t.Tenant, publisher, list)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	nc, err := t.Connect(ctx, target.Runtime)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := system.WithRefusals(ctx, nc)
	defer cancel()
	if err := streams.PublishEvents(ctx, nc, msgs); err != nil {
		if no := system.Refusal(ctx); no != nil {
			return fmt.Errorf("this user may not publish as %s of tenant %s; use the credentials of that runtime: %w", publisher, t.Tenant, no)
		}
		var pe *streams.PublishError
		if errors.As(err, &pe) {
			return fmt.Errorf("%d of %d events are not known to be stored: %w", len(pe.Failed), len(msgs), err)
		}
		return err
	}
	if !c.Quiet {
		fmt.Fprintf(io.Out, "%d stored\n", len(msgs))
	}
	return nil
}

func (c *PublishCmd) messages(tenant, publisher string, list [][]byte) ([]streams.Msg, error) {
	sender := client.Sender{Space: subject.Space{Prefix: c.Prefix}, Tenant: tenant, Publisher: publisher, Session: c.Session}
	if !c.CloudEvents {
		return sender.Messages(c.Protocol, list...)
	}
	parsed := make([]event.Event, len(list))
	for i, raw := range list {
		if parsed[i].UnmarshalJSON(raw) != nil { // the SDK's error can quote a value
			return nil, fmt.Errorf("%s: event %d is no CloudEvent in the JSON format", c.File, i+1)
		}
	}
	return sender.CloudEventMessages(c.Protocol, parsed...)
}

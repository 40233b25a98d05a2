package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/schemas"
	"github.com/countersign-dev/countersign/schemas/judge"
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
		c.warnOfInvalid(io, msgs)
	}
	return nil
}

// warnOfInvalid counts the stored messages that are no valid events. The log takes all: what a publisher sends is evidence.
func (c *PublishCmd) warnOfInvalid(io ui.Stdio, msgs []streams.Msg) {
	count, first, why := 0, 0, ""
	for i, m := range msgs {
		if text := invalid(c.Protocol, m.Body); text != "" {
			if count++; count == 1 {
				first, why = i+1, text
			}
		}
	}
	if count > 0 {
		fmt.Fprintf(io.Err, "warning: %d of %d are no valid %s events (number %d: %s); they are stored, and findings name them\n", count, len(msgs), c.Protocol, first, ui.Clean(why, 200))
	}
}

// invalid says what is wrong with an event or a request; "" if it is valid, or its protocol has no schema.
func invalid(protocol string, document []byte) string {
	if !slices.Contains(schemas.Tokens(), protocol) {
		return ""
	}
	found, err := judge.Judge(protocol, document)
	if err != nil {
		return err.Error()
	}
	if i := slices.IndexFunc(found, func(v schemas.Violation) bool { return v.Level != schemas.LevelWarning }); i >= 0 {
		return found[i].String()
	}
	return ""
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

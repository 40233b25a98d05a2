package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/cmd/internal/target"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

type admitCmd struct {
	target.Flags
	Protocol   string        `help:"Protocol of the request: agenthook or aaep." required:""`
	Session    string        `help:"Session, for protocols whose body has no field for it."`
	ToolCallID string        `help:"Tool call id, for protocols whose body has no field for it."`
	Timeout    time.Duration `help:"How long to wait for the verdict." default:"5s"`
	File       string        `arg:"" help:"The request in the protocol's own JSON, - for standard input."`
}

// verdictExit is how a verdict becomes an exit code.
var verdictExit = map[events.Verdict]int{
	events.Allow: exitOK, events.Ask: exitPending, events.Defer: exitPending, events.Deny: exitDenied,
}

func (c *admitCmd) Run(ctx context.Context, io stdio) error {
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	body, err := readInput(io, c.File)
	if err != nil {
		return err
	}
	nc, err := t.Connect(ctx, target.Runtime)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	ctx, heeded := heedRefusals(ctx, nc)
	defer heeded()
	reply, err := client.Request(ctx, nc, subject.Space{Prefix: c.Prefix}, t.Tenant,
		client.Call{Protocol: c.Protocol, Body: body, Session: c.Session, ToolCallID: c.ToolCallID})
	switch no := refused(ctx); {
	case err != nil && no != nil:
		return fmt.Errorf("no verdict: this user may not ask for tenant %s; use the credentials of a runtime of it, and treat this as deny: %w", t.Tenant, no)
	case errors.Is(err, nats.ErrNoResponders):
		return errors.New("no verdict: no admitter is listening; treat this as deny, and see `countersign doctor`")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("no verdict within %s; treat this as deny, and see `countersign doctor`", c.Timeout)
	case err != nil:
		return fmt.Errorf("no verdict: %w; treat this as deny", err)
	}
	if _, err := fmt.Fprintf(io.out, "%s\n", reply.Data); err != nil {
		return err
	}
	verdict := events.Verdict(reply.Header.Get(events.HeaderVerdict))
	code, known := verdictExit[verdict]
	if !known {
		return errors.New("no verdict: the reply names none; treat this as deny")
	}
	if code == exitOK {
		return nil
	}
	return exitCode(code)
}

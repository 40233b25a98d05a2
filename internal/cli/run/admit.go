package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// AdmitCmd is `countersign admit`.
type AdmitCmd struct {
	target.Flags
	Protocol   string        `help:"Protocol of the request: agenthook, aaep, tool, handoff, aana or aump." required:""`
	Session    string        `help:"Session, for protocols whose body has no field for it."`
	ToolCallID string        `help:"Tool call id, for protocols whose body has no field for it."`
	Timeout    time.Duration `help:"How long to wait for the verdict." default:"5s"`
	Key        string        `help:"The public checkpoint key that receipts are checked with, or a file that holds it (default: the ready file's, from which the variable must not differ)." env:"COUNTERSIGN_PUBLIC_KEY" placeholder:"FILE"`
	Unchecked  bool          `name:"insecure-no-receipt" help:"Believe an allow without checking its receipt: a process that can answer in the admitter's place can allow anything."`
	File       string        `arg:"" help:"The request in the protocol's own JSON, - for standard input."`
}

// verdictExit maps verdicts to exit codes.
var verdictExit = map[events.Verdict]int{
	events.Allow: ui.ExitOK, events.Ask: ui.ExitPending, events.Defer: ui.ExitPending, events.Deny: ui.ExitDenied,
}

func (c *AdmitCmd) Run(ctx context.Context, io ui.Stdio) error {
	for _, id := range []string{c.Session, c.ToolCallID} {
		if strings.TrimSpace(id) != id {
			return ui.UsageError{Err: fmt.Errorf("%q begins or ends with a blank, which the header does not keep: the verdict would be for another id. Give it without", id)}
		}
	}
	if !slices.Contains(admission.Protocols(), c.Protocol) {
		return ui.UsageError{Err: fmt.Errorf("--protocol must be one of %s", strings.Join(admission.Protocols(), ", "))}
	}
	t, err := c.Resolve()
	if err != nil {
		return err
	}
	body, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	check, err := c.checker(t, body)
	if err != nil {
		return err
	}
	reply, err := c.ask(ctx, t, body)
	if err != nil {
		return err
	}
	verdict := events.Verdict(reply.Header.Get(events.HeaderVerdict))
	code, known := verdictExit[verdict]
	if !known {
		return errors.New("no verdict: the reply names none; treat this as deny")
	}
	// An allow that fails the check is not printed.
	if err := check.reply(verdict, reply, time.Now()); err != nil {
		return fmt.Errorf("no verdict: %w; treat this as deny", err)
	}
	if _, err := fmt.Fprintf(io.Out, "%s\n", reply.Data); err != nil {
		return err
	}
	if code == ui.ExitOK {
		return nil
	}
	if code == ui.ExitDenied && invalid(c.Protocol, body) != "" {
		fmt.Fprintf(io.Err, "the request is not valid %s; where: countersign validate %[1]s %s\n", c.Protocol, ui.Clean(c.File, 200))
	}
	return ui.ExitCode(code)
}

// ask sends the request and waits for the reply.
func (c *AdmitCmd) ask(ctx context.Context, t *target.Target, body []byte) (*nats.Msg, error) {
	nc, err := t.Connect(ctx, target.Runtime)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	ctx, heeded := system.WithRefusals(ctx, nc)
	defer heeded()
	reply, err := client.RequestResending(ctx, nc, subject.Space{Prefix: c.Prefix}, t.Tenant,
		client.Call{Protocol: c.Protocol, Body: body, Session: c.Session, ToolCallID: c.ToolCallID}, c.Timeout)
	switch no := system.Refusal(ctx); {
	case err == nil:
		return reply, nil
	case no != nil:
		return nil, fmt.Errorf("no verdict: this user may not ask for tenant %s; use the credentials of a runtime of it, and treat this as deny: %w", t.Tenant, no)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errors.New("no verdict: no admitter is listening; treat this as deny, and see `countersign doctor`")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return nil, fmt.Errorf("no verdict within %s; treat this as deny, and see `countersign doctor`", c.Timeout)
	}
	return nil, fmt.Errorf("no verdict: %w; treat this as deny", err)
}

// checker returns the checker for the reply to this request.
func (c *AdmitCmd) checker(t *target.Target, body []byte) (*replyChecker, error) {
	r := &replyChecker{protocol: c.Protocol, tenant: t.Tenant, source: t.Publisher(), body: body, header: map[string][]string{}}
	for name, v := range map[string]string{events.HeaderSession: c.Session, events.HeaderToolCallID: c.ToolCallID} {
		if v != "" {
			r.header[name] = []string{v}
		}
	}
	ready := t.ReadyInfo()
	switch {
	case c.Unchecked:
		r.unchecked = true
		return r, nil
	case c.Key == "" && (ready == nil || ready.PublicKey == ""):
		return r, nil // an allow will be refused
	}
	public, err := system.CheckpointKey(c.Key, t)
	if err != nil {
		return nil, err
	}
	r.guard, err = guard.New(guard.Options{Tenant: t.Tenant, PublicKey: public})
	return r, err
}

// Package approvalscmd has the command approvals: the reviewer lists, shows and decides the workflows
// that wait.
package approvalscmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/client"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/gateclient"
)

// Cmd is `countersign approvals`.
type Cmd struct {
	List    approvalsListCmd    `cmd:"" help:"List the workflows that wait for a reviewer."`
	Show    approvalsShowCmd    `cmd:"" help:"Show what a workflow is about."`
	Approve approvalsApproveCmd `cmd:"" help:"Let the agent do exactly what the workflow shows, once."`
	Deny    approvalsDenyCmd    `cmd:"" help:"Refuse the agent what the workflow shows until the workflow's time is up or the policies change."`
	Cancel  approvalsCancelCmd  `cmd:"" help:"Take a workflow back, also an approved one that was not used yet."`
}

// reviewing holds the flags of all these commands.
type reviewing struct {
	target.Flags
	Timeout time.Duration `help:"How long to wait for the answer." default:"5s"`
	JSON    bool          `name:"json" help:"Print the answer as it is."`
}

// reviewer is a connection to the admitter in the role of a reviewer.
type reviewer struct {
	reviewing
	t  *target.Target
	nc *nats.Conn
	io ui.Stdio
}

func (r reviewing) connect(ctx context.Context, io ui.Stdio) (*reviewer, error) {
	if r.ReadyFile == "" && r.Server == "" && r.Context == "" {
		r.ReadyFile = readyFileOfGates()
	}
	t, err := r.Resolve()
	if err != nil {
		return nil, err
	}
	nc, err := t.Connect(ctx, target.Reviewer)
	if err != nil {
		return nil, err
	}
	return &reviewer{r, t, nc, io}, nil
}

// readyFileOfGates is the ready file that `countersign hook install` was given, empty if there is none: refusals of
// the gates tell people a command without one.
func readyFileOfGates() string {
	path, err := gateclient.DefaultConfigPath()
	if err != nil {
		return ""
	}
	c, err := gateclient.ReadConfig(path)
	if err != nil {
		return ""
	}
	return c.ReadyFile
}

// ask sends one request. A refusal is an error with the admitter's message.
func (r *reviewer) ask(ctx context.Context, req approval.Request) (approval.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	ctx, heeded := system.WithRefusals(ctx, r.nc)
	defer heeded()
	reply, err := client.Resolve(ctx, r.nc, subject.Space{Prefix: r.Prefix}, r.t.Tenant, req)
	switch no := system.Refusal(ctx); {
	case err != nil && no != nil:
		return reply, fmt.Errorf("this user may not review for tenant %s; use the credentials of a reviewer of it: %w", r.t.Tenant, no)
	case errors.Is(err, nats.ErrNoResponders):
		return reply, errors.New("no admitter is listening; see `countersign doctor`")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return reply, fmt.Errorf("no answer within %s; what was asked may have been done: look with `countersign approvals show`", r.Timeout)
	case err != nil:
		return reply, err
	case !reply.OK:
		return reply, fmt.Errorf("%s: %s", reply.Code, reply.Message)
	}
	return reply, nil
}

// raw prints the reply as JSON if --json is given, even with an error.
func (r *reviewer) raw(reply approval.Reply, err error) error {
	if r.JSON && reply.Code != "" {
		if err := ui.WriteJSON(r.io, reply); err != nil {
			return err
		}
	}
	return err
}

type approvalsListCmd struct {
	reviewing
	All bool `help:"Decided ones, too, as far as they are kept (an hour)."`
}

func (c *approvalsListCmd) Run(ctx context.Context, io ui.Stdio) error {
	r, err := c.connect(ctx, io)
	if err != nil {
		return err
	}
	defer r.nc.Close()
	all := approval.NewReply(approval.CodeListed, nil)
	all.Workflows = []approval.View{}
	for req := (approval.Request{Action: approval.CommandList, All: c.All, Limit: approval.MaxLimit}); ; {
		page, err := r.ask(ctx, req)
		if err != nil {
			return r.raw(page, err)
		}
		all.Workflows = append(all.Workflows, page.Workflows...)
		if req.After = page.Next; page.Next == "" {
			break
		}
	}
	if c.JSON {
		return r.raw(all, nil)
	}
	p := ui.NewPrinter(io.Out)
	if len(all.Workflows) == 0 {
		p.Printf("nothing waits for you\n")
	}
	for _, v := range all.Workflows {
		printWorkflowLine(p, v, time.Now())
	}
	return nil
}

type approvalsShowCmd struct {
	reviewing
	Workflow string `arg:"" help:"The workflow's id."`
}

func (c *approvalsShowCmd) Run(ctx context.Context, io ui.Stdio) error {
	r, err := c.connect(ctx, io)
	if err != nil {
		return err
	}
	defer r.nc.Close()
	reply, err := r.ask(ctx, approval.Request{Action: approval.CommandShow, WorkflowID: c.Workflow})
	if err != nil || c.JSON {
		return r.raw(reply, err)
	}
	printPreview(ui.NewPrinter(io.Out), *reply.Workflow, time.Now())
	return nil
}

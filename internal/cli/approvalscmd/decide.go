package approvalscmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// deciding holds the flags of the commands that change a workflow.
type deciding struct {
	reviewing
	Reason   string `help:"Why; it becomes part of the record. No secrets."`
	Workflow string `arg:"" help:"The workflow's id."`
}

// decide sends the request and prints the result.
func (d deciding) decide(ctx context.Context, r *reviewer, action, digest string) error {
	reply, err := r.ask(ctx, approval.Request{Action: action, WorkflowID: d.Workflow, Reason: d.Reason, PreviewDigest: digest})
	if err == nil && lacksReason(reply.Code, d.Reason) {
		fmt.Fprintln(r.io.Err, "no --reason: the record does not say why (finding AH-C-108)")
	}
	if err != nil || d.JSON {
		return r.raw(reply, err)
	}
	text := reply.Message
	if v := reply.Workflow; v != nil && reply.Code == approval.CodeRecorded {
		text = fmt.Sprintf("%s (%d of %d)", text, len(v.Approvers), v.Quorum)
	}
	ui.NewPrinter(r.io.Out).Printf("%s  %s\n", d.Workflow, ui.Clean(text, 200))
	return nil
}

// lacksReason reports whether the record of a decided workflow does not say why. A cancelled one need not.
func lacksReason(code approval.Code, reason string) bool {
	return reason == "" && (code == approval.CodeApproved || code == approval.CodeDenied)
}

type approvalsApproveCmd struct {
	deciding
	PreviewDigest string `help:"Approve only what has this digest (preview_digest of show; default: the preview that is shown now)." placeholder:"DIGEST"`
	Yes           bool   `short:"y" help:"On a terminal: do not ask."`
}

func (c *approvalsApproveCmd) Run(ctx context.Context, io ui.Stdio) error {
	r, err := c.connect(ctx, io)
	if err != nil {
		return err
	}
	defer r.nc.Close()
	digest := c.PreviewDigest
	if digest == "" {
		reply, err := r.ask(ctx, approval.Request{Action: approval.CommandShow, WorkflowID: c.Workflow})
		if err != nil {
			return r.raw(reply, err)
		}
		digest = reply.Workflow.PreviewDigest
		printPreview(ui.NewPrinter(io.Err), *reply.Workflow, time.Now())
		if !c.Yes && !ui.Confirmed(io, "Approve exactly this, once?") {
			return errors.New("not approved: the prompt was not answered with yes")
		}
	}
	return c.decide(ctx, r, approval.CommandApprove, digest)
}

type approvalsDenyCmd struct{ deciding }

func (c *approvalsDenyCmd) Run(ctx context.Context, io ui.Stdio) error {
	return c.once(ctx, io, approval.CommandDeny)
}

type approvalsCancelCmd struct{ deciding }

func (c *approvalsCancelCmd) Run(ctx context.Context, io ui.Stdio) error {
	return c.once(ctx, io, approval.CommandCancel)
}

func (d deciding) once(ctx context.Context, io ui.Stdio, action string) error {
	r, err := d.connect(ctx, io)
	if err != nil {
		return err
	}
	defer r.nc.Close()
	return d.decide(ctx, r, action, "")
}

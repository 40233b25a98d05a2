package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/streams"
)

// TenantCmd is `countersign tenant`.
type TenantCmd struct {
	Add tenantAddCmd `cmd:"" help:"Add a tenant to a running 'up': its users, their tokens and its gateway."`
}

// UserCmd is `countersign user`.
type UserCmd struct {
	Add userAddCmd `cmd:"" help:"Add a user to a tenant of a running 'up': a publisher, a subscriber or a reviewer."`
}

// additionFlags are common to additions.
type additionFlags struct {
	ReadyFile string `help:"Ready file of the running 'up'." env:"COUNTERSIGN_READY_FILE" placeholder:"FILE"`
	Out       string `help:"Write a ready file for what was added: addresses, passwords and tokens (default: print it)." type:"path" placeholder:"FILE"`
}

type tenantAddCmd struct {
	additionFlags
	Name string `arg:"" help:"Letters, digits, _ and -."`
}

type userAddCmd struct {
	additionFlags
	Tenant string `help:"The user's tenant (default: that of 'up')." placeholder:"NAME"`
	Role   string `help:"runtime: asks and publishes, as a publisher of this name; subscriber: follows all outputs; reviewer: decides approvals." enum:"runtime,subscriber,reviewer" required:""`
	Name   string `arg:"" help:"Letters, digits, _ and -; no other user of any tenant has it."`
}

func (c *tenantAddCmd) Run(ctx context.Context, io ui.Stdio) error {
	up, err := c.up()
	if err != nil {
		return err
	}
	added, err := pipeline.AddTenant(ctx, up, c.Name)
	if err != nil {
		return usageOf(err)
	}
	return c.give(io, added, "tenant "+c.Name)
}

func (c *userAddCmd) Run(ctx context.Context, io ui.Stdio) error {
	up, err := c.up()
	if err != nil {
		return err
	}
	if c.Tenant == "" {
		c.Tenant = up.Tenant
	}
	added, err := pipeline.AddUser(ctx, up, c.Tenant, c.Name, streams.Role(c.Role))
	if err != nil {
		return usageOf(err)
	}
	return c.give(io, added, c.Role+" "+c.Name+" of tenant "+c.Tenant)
}

func usageOf(err error) error {
	if errors.Is(err, pipeline.ErrMember) {
		return ui.UsageError{Err: err}
	}
	return err
}

// up is the running system. The ready file must be its own: that of a tenant or a user adds nothing.
func (f additionFlags) up() (target.Ready, error) {
	if f.ReadyFile == "" {
		return target.Ready{}, ui.UsageError{Err: errors.New("give --ready-file FILE of a running `countersign up`")}
	}
	t, err := target.Flags{ReadyFile: f.ReadyFile}.Resolve()
	if err != nil {
		return target.Ready{}, err
	}
	return *t.ReadyInfo(), nil
}

// give hands out what was added.
func (f additionFlags) give(io ui.Stdio, added target.Ready, what string) error {
	for _, r := range added.Roles {
		if r.Token == "" {
			fmt.Fprintf(io.Err, "the token of %s is revoked or expired and is left out; make another with `countersign token create --for %s`\n", r.User, r.User)
		}
	}
	if f.Out == "" {
		return ui.WriteJSON(io, added)
	}
	if err := added.Write(f.Out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.Out, "%s is there; addresses, passwords and tokens: %s\n", what, f.Out)
	return err
}

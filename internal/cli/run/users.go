package run

import (
	"cmp"
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
	Add    tenantAddCmd    `cmd:"" help:"Add a tenant to a running 'up': its users, their tokens and its gateway."`
	Remove tenantRemoveCmd `cmd:"" help:"Remove a tenant that was added to a running 'up': its users, their tokens and its gateway. Its records stay, with their retention."`
}

// UserCmd is `countersign user`.
type UserCmd struct {
	Add    userAddCmd    `cmd:"" help:"Add a user to a tenant of a running 'up': a publisher, a subscriber or a reviewer."`
	Remove userRemoveCmd `cmd:"" help:"Remove a user that was added to a running 'up'. What it wrote stays, its votes too."`
}

// upFlags name the running system.
type upFlags struct {
	ReadyFile string `help:"Ready file of the running 'up'." env:"COUNTERSIGN_READY_FILE" placeholder:"FILE"`
}

// additionFlags are common to additions.
type additionFlags struct {
	upFlags
	Out string `help:"Write a ready file for what was added: addresses, passwords and tokens (default: print it)." type:"path" placeholder:"FILE"`
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
	c.Tenant = cmp.Or(c.Tenant, up.Tenant)
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

// removalFlags are common to removals.
type removalFlags struct {
	upFlags
	Yes  bool `short:"y" help:"On a terminal: do not ask."`
	JSON bool `name:"json" help:"Print JSON."`
}

type tenantRemoveCmd struct {
	removalFlags
	Name string `arg:"" help:"The tenant."`
}

// Help is the command's long help.
func (c *tenantRemoveCmd) Help() string {
	return `The tenant's gateway stops, the server closes the connections of its users, and their tokens are revoked. Nothing that is open becomes an allow: pending approvals expire, and open calls end as missing_completion. A receipt that was given before holds until it expires. Records and evidence stay.

A removal that was interrupted is completed by 'up', after a restart too; the same command again waits for it. A tenant of this name that is added later has other credentials, and the same name in the records.`
}

type userRemoveCmd struct {
	removalFlags
	Tenant string `help:"The user's tenant (default: that of 'up')." placeholder:"NAME"`
	Name   string `arg:"" help:"The user."`
}

// Help is the command's long help.
func (c *userRemoveCmd) Help() string {
	return `The server closes the user's connections, and its tokens and mappings are revoked before the command returns. A receipt that the user got before holds until it expires. Policies that name the user stay as they are.

A removal that was interrupted is completed by 'up', after a restart too; the same command again waits for it. A user of this name that is added later has other credentials, and the same name in the records.`
}

func (c *tenantRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	return c.remove(io, fmt.Sprintf("remove the tenant %s with all its users?", ui.Clean(c.Name, 64)), func(up target.Ready) (pipeline.Removed, error) {
		return pipeline.RemoveTenant(ctx, up, c.Name)
	})
}

func (c *userRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	return c.remove(io, fmt.Sprintf("remove the user %s?", ui.Clean(c.Name, 64)), func(up target.Ready) (pipeline.Removed, error) {
		return pipeline.RemoveUser(ctx, up, cmp.Or(c.Tenant, up.Tenant), c.Name)
	})
}

func (f removalFlags) remove(io ui.Stdio, question string, remove func(target.Ready) (pipeline.Removed, error)) error {
	up, err := f.up()
	if err != nil {
		return err
	}
	if !f.Yes && !ui.Confirmed(io, question) {
		return errors.New("nothing was removed")
	}
	done, err := remove(up)
	switch {
	case err != nil:
		return usageOf(err)
	case f.JSON:
		return ui.WriteJSON(io, done)
	}
	state := "removed"
	if done.Already {
		state = "removed already"
	}
	for _, user := range done.Users {
		fmt.Fprintf(io.Out, "user %s of tenant %s is %s\n", user, done.Tenant, state)
	}
	return nil
}

// up is the running system. The ready file must be its own: that of a tenant or a user adds nothing.
func (f upFlags) up() (target.Ready, error) {
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

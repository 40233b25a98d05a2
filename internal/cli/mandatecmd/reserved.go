package mandatecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

type mandateReservedCmd struct {
	target.Flags
	JSON bool   `name:"json" help:"Print JSON."`
	ID   string `arg:"" help:"The mandate's id."`
}

// reservedMoney is the money that one call holds until its outcome is known.
type reservedMoney struct {
	Currency  string                 `json:"currency"`
	Amount    int64                  `json:"amount_minor"`
	State     mandate.AllowanceState `json:"state"` // reserved, or lapsed while a receipt is valid
	Session   string                 `json:"session"`
	Decisions []string               `json:"decision_ids"` // oldest first
	At        events.Time            `json:"at"`           // of the last reservation or change of state
	Expires   events.Time            `json:"receipt_expires_at"`
}

func (c *mandateReservedCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	_, revision, err := b.newest(ctx, c.ID)
	if err != nil && revision == 0 {
		return err
	}
	accounts, err := b.accounts(ctx)
	if err != nil {
		return err
	}
	if revision == 0 && accounts[c.ID] == nil {
		return fmt.Errorf("tenant %s has no mandate %s (mandate list)", b.Tenant, c.ID)
	}
	list := []reservedMoney{}
	for _, a := range accounts[c.ID] {
		if a.err != nil {
			return fmt.Errorf("the account in %s cannot be read: %w", ui.Clean(a.currency, 8), a.err)
		}
		for _, e := range a.Reservations(time.Now().UnixMilli()) {
			r := reservedMoney{Currency: a.currency, Amount: e.Amount, State: e.State, Session: e.Session, At: events.At(time.UnixMilli(e.At)), Expires: events.At(time.UnixMilli(e.Expires))}
			for _, d := range e.Decisions {
				r.Decisions = append(r.Decisions, d.Decision)
			}
			list = append(list, r)
		}
	}
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(io.Out, "nothing is reserved under %s\n", ui.Clean(c.ID, 600))
	}
	for _, r := range list {
		fmt.Fprintf(io.Out, "%s %d  %s since %s  session %s\n", ui.Clean(r.Currency, 8), r.Amount, r.State, r.At, ui.Clean(r.Session, 200))
		for _, id := range r.Decisions {
			fmt.Fprintf(io.Out, "    countersign explain %s\n", ui.Clean(id, 64))
		}
	}
	return nil
}

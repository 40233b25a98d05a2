package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/events"
)

// Verdict is the answer to Admit. The zero Verdict is deny.
type Verdict struct {
	Decision   events.Verdict // allow only if the receipt was checked
	Reason     string         // why, where it is not allow: one of the Reason constants or the admitter's code
	Err        error          // what went wrong, for a Reason of this package; Code gives the exact one
	DecisionID string
	Receipt    string // compact JWS
	Key        string // the record of the key that signed it, JSON
	Reply      []byte // the protocol's own reply
	Workflow   string // the approval workflow that an ask or a defer waits for, or that was used; else ""

	guard                             *Guard
	source, session, toolCallID, tool string
}

// Errors of Permits and Run.
var (
	ErrNotAllowed  = errors.New("client: not allowed")
	ErrReceiptUsed = errors.New("client: this receipt was used before; ask again")
)

// Allowed reports whether the call was admitted. An executor that cannot call
// Run or Permits with the arguments it is about to run may go by it alone.
func (v Verdict) Allowed() bool { return v.Decision == events.Allow }

// Run is the executor's last check and the execution in one: f runs if the call
// was admitted, the receipt holds now, for this call and for exactly these
// arguments (the JSON the tool is about to be run with; nil where the protocol
// has none), and was not used before. Otherwise the error is *Refused and f was
// not called.
func (v Verdict) Run(ctx context.Context, args []byte, f func(context.Context) error) error {
	if err := v.consumePermit(ctx, args); err != nil {
		return err
	}
	return f(ctx)
}

// Permits is Run for executors that cannot hand over what they do: the tool must
// run right after it, and only if it is nil. It is nil once for every receipt.
func (v Verdict) Permits(args []byte) error { return v.consumePermit(context.Background(), args) }

func (v Verdict) consumePermit(ctx context.Context, args []byte) error {
	if !v.Allowed() || v.guard == nil {
		return newRefused(CodeNotAllowed, fmt.Errorf("%w: %s", ErrNotAllowed, v.Reason))
	}
	return v.guard.useReceipt(ctx, v.Execution(args))
}

// Execution is the admitted call as a Guard in another process takes it. What it
// says of the call is what this client asked for; the executor fills in what it
// is itself about to run.
func (v Verdict) Execution(args []byte) Execution {
	return Execution{
		Receipt: v.Receipt, Key: v.Key, Source: v.source, Session: v.session, ToolCallID: v.toolCallID, Tool: v.tool, Arguments: args,
	}
}

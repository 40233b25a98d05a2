package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
)

// Verdict is the answer to Admit. The zero Verdict is deny.
type Verdict struct {
	Decision   events.Verdict // allow only if the receipt was checked
	Reason     string         // of a deny: one of the Reason constants or the admitter's code
	Err        error          // the error behind a Reason of this package; Code gives the exact one
	DecisionID string
	Receipt    string // compact JWS
	Key        string // the record of the signing key, JSON
	Reply      []byte // the protocol's own reply
	Workflow   string // the approval workflow that an ask or a defer waits for, or that was consumed; else ""

	guard                             *guard.Guard
	source, session, toolCallID, tool string
}

// ErrNotAllowed is the error of Permits and Run for a verdict that is no allow.
var ErrNotAllowed = errors.New("client: not allowed")

// Allowed reports whether the call was admitted. It is enough only for an executor that cannot
// pass its final arguments to Run or Permits.
func (v Verdict) Allowed() bool { return v.Decision == events.Allow }

// Run is the executor's last check and the execution in one: it calls f if the call was
// admitted, and the receipt is valid now, for this call and for exactly these arguments (the
// JSON that the tool is about to run with; nil where the protocol has none), and was not used
// before. Otherwise the error is *guard.Refused and f is not called.
func (v Verdict) Run(ctx context.Context, args []byte, f func(context.Context) error) error {
	if err := v.consumePermit(ctx, args); err != nil {
		return err
	}
	return f(ctx)
}

// Permits is Run for executors that cannot pass their work as a function: the tool must run
// right after it, and only if it returns nil. It returns nil once for every receipt.
func (v Verdict) Permits(args []byte) error { return v.consumePermit(context.Background(), args) }

func (v Verdict) consumePermit(ctx context.Context, args []byte) error {
	if !v.Allowed() || v.guard == nil {
		return &guard.Refused{Code: guard.CodeNotAllowed, Err: fmt.Errorf("%w: %s", ErrNotAllowed, v.Reason)}
	}
	return v.guard.Use(ctx, v.Execution(args))
}

// Execution returns the admitted call for a guard in another process. Its fields are those of
// this client's request; the executor must replace them by what it is about to run.
func (v Verdict) Execution(args []byte) guard.Execution {
	return guard.Execution{
		Receipt: v.Receipt, Key: v.Key, Source: v.source, Session: v.session, ToolCallID: v.toolCallID, Tool: v.tool, Arguments: args,
	}
}

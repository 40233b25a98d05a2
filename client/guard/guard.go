// Package guard is the package for tool executors: the last check before a tool runs. A Guard
// verifies the admitter's receipt for exactly the call that is about to run, and lets a receipt
// be used once. It needs no connection, only the public checkpoint key. Package client asks for
// the receipt. Begin reading with Guard.Use.
package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Guard is the executor's last check. It needs no connection and no admitter, only the public
// checkpoint key, which vouches for the keys that sign receipts. It is safe for concurrent use.
//
// Executors should use Run, which runs the tool only if everything holds.
type Guard struct {
	tenant  string
	keyring *keyring
	uses    UseStore
	now     func() time.Time
}

// Options configure a Guard.
type Options struct {
	Tenant string // tenant of this executor's calls; a receipt of another tenant is refused

	// PublicKey is the checkpoint key's public half (`public_key` in the ready file,
	// checkpoint.pub on disk). While that key is being replaced, give both keys, one a line.
	PublicKey string

	// Records are key records and retirements that are known beforehand, JSON each
	// (receipt.json and retired-*.json of an admitter; `countersign keys list --json` prints
	// them). A key that comes with a receipt is accepted too if it is vouched for, unless
	// Pinned is set: then only the keys in Records count.
	Records [][]byte
	Pinned  bool

	// Uses remembers used receipts; default NewMemory(0), which serves one process until its
	// end.
	Uses UseStore

	// Now is the executor's clock; default time.Now. A receipt ends at its expiry by this
	// clock, without tolerance: a clock that is a second slow lets receipts live a second
	// longer. A clock that is behind the admitter's by up to receipt.Leeway (30 s) does not
	// cause the refusal of a fresh receipt. Synchronise clocks by NTP.
	Now func() time.Time
}

// New returns a guard.
func New(o Options) (*Guard, error) {
	if o.Tenant == "" {
		return nil, errors.New("guard: Options.Tenant is required: without it a receipt of any tenant would do")
	}
	ring, err := newKeyring(o.PublicKey, o.Pinned)
	if err != nil {
		return nil, err
	}
	g := &Guard{tenant: o.Tenant, keyring: ring, uses: o.Uses, now: o.Now}
	if g.uses == nil {
		g.uses = NewMemory(0)
	}
	if g.now == nil {
		g.now = time.Now
	}
	for _, record := range o.Records {
		if err := g.Trust(record); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Trust adds a key record or a key retirement, JSON, if the checkpoint key vouches for it. A
// retired key stays retired, in any order of the records.
func (g *Guard) Trust(record []byte) error { return g.keyring.addRecord(record) }

// Execution is a tool call that is about to run, and the receipt that should allow it. All
// fields but Receipt and Key must be what the executor itself knows and is about to do, not
// what came with the receipt.
type Execution struct {
	Receipt string // compact JWS: header Countersign-Receipt of the reply
	Key     string // header Countersign-Key of the reply; may be empty if the key is known

	Source     string // the publisher that asked: the runtime's NATS user
	Session    string
	ToolCallID string
	Tool       string

	// Arguments is the JSON that the tool is about to run with; nil for a protocol without
	// arguments (AAEP). They must not change while Run is active: the tool must run with the
	// checked arguments. Run compares them again right before it calls f.
	Arguments []byte
}

// Reason codes of executions that are refused, besides those of receipts.
const (
	CodeNotAllowed  = "not_allowed"         // there is no allow
	CodeBadCall     = "bad_call"            // the execution does not say what is about to run
	CodeNoReceipt   = "receipt_missing"     // no receipt
	CodeBadArgs     = "bad_arguments"       // the arguments are not strict JSON
	CodeUsed        = "receipt_used"        // the receipt was used before
	CodeUsesUnknown = "receipt_use_unknown" // the memory of used receipts does not answer, or is full
	CodeCanceled    = "canceled"            // the context ended before anything ran
)

// Refused reports that a call was not run, not even in part. Code is stable.
type Refused struct {
	Code string
	Err  error
}

func (r *Refused) Error() string { return r.Err.Error() }
func (r *Refused) Unwrap() error { return r.Err }

// Code returns the reason code of a refusal, "" for any other error: the call then ran, and the
// error is f's.
func Code(err error) string {
	var r *Refused
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

// ErrReceiptUsed is the error behind CodeUsed.
var ErrReceiptUsed = errors.New("guard: this receipt was used before; ask again")

func newRefused(code string, err error) error { return &Refused{Code: code, Err: err} }

// Run calls f if, and only if, the receipt allows exactly this call, is valid now and was not
// used before; otherwise the error is *Refused. The receipt counts as used from before f
// begins, also if f fails or panics: a retry needs a new admission. f's own error is returned
// unchanged.
func (g *Guard) Run(ctx context.Context, e Execution, f func(context.Context) error) error {
	if err := g.Use(ctx, e); err != nil {
		return err
	}
	return f(ctx)
}

// Check reports whether Run would run the call, without using the receipt. It is for display
// and early refusals; only Run may run a call.
func (g *Guard) Check(e Execution) error {
	_, err := g.verifyExecution(e, g.now())
	return err
}

// Open verifies the signature of a receipt and returns its claims. It permits nothing. key may
// be empty if the key is known.
func (g *Guard) Open(token, key string) (receipt.Claims, error) {
	g.keyring.learnKey(key)
	return g.keyring.openReceipt(token)
}

// Use is Run for executors that cannot pass their work as a function: it checks an execution and
// marks its receipt as used. The tool must run right after it, and only if it returns nil; any
// error is *Refused.
func (g *Guard) Use(ctx context.Context, e Execution) error {
	now, given := g.now(), e.Arguments
	e.Arguments = bytes.Clone(given)
	claims, err := g.verifyExecution(e, now)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return newRefused(CodeCanceled, err)
	}
	first, err := g.uses.MarkUsed(ctx, useOf(claims, now))
	switch {
	case err != nil:
		return newRefused(CodeUsesUnknown, fmt.Errorf("guard: whether the receipt was used before is not known: %w", err))
	case !first:
		return newRefused(CodeUsed, ErrReceiptUsed)
	}
	// The call to the UseStore may have taken long.
	if err := claims.HoldsAt(g.now()); err != nil {
		return newRefused(receipt.Code(err), err)
	}
	if !bytes.Equal(given, e.Arguments) {
		return newRefused(receipt.Code(receipt.ErrOtherArguments), receipt.ErrOtherArguments)
	}
	return nil
}

// verifyExecution verifies everything but the use.
func (g *Guard) verifyExecution(e Execution, now time.Time) (receipt.Claims, error) {
	if e.Receipt == "" {
		return receipt.Claims{}, newRefused(CodeNoReceipt, errors.New("guard: there is no receipt"))
	}
	if e.Source == "" {
		return receipt.Claims{}, newRefused(CodeBadCall, errors.New("guard: Execution.Source is empty: say which publisher asked"))
	}
	args, err := canonicalJSON(e.Arguments)
	if err != nil {
		return receipt.Claims{}, newRefused(CodeBadArgs, fmt.Errorf("guard: the arguments: %w", err))
	}
	g.keyring.learnKey(e.Key)
	claims, err := g.keyring.verifyReceipt(e.Receipt, receipt.Expectation{
		Tenant: g.tenant, Source: e.Source, Session: e.Session, ToolCallID: e.ToolCallID, Tool: e.Tool, ArgsCanonical: args,
	}, now)
	if err != nil {
		return claims, newRefused(receipt.Code(err), err)
	}
	return claims, nil
}

// canonicalJSON returns the canonical form of the arguments, nil for none.
func canonicalJSON(args []byte) ([]byte, error) {
	if args == nil {
		return nil, nil
	}
	tree, err := strictjson.Parse(args, strictjson.DefaultLimits)
	if err != nil {
		return nil, err
	}
	return strictjson.Canonical(tree)
}
